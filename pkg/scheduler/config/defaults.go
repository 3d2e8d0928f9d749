// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// DefaultPluginDirectory is where plugins are searched by default.
const DefaultPluginDirectory = "/schedulerplugins"

// Defaults returns the arguments of a profile that sets none. The seal mode is left out: without a
// key it is off, and with one it is what the file of keys states, else enforce.
func Defaults() *KubeDeviceArgs {
	return &KubeDeviceArgs{
		PluginDirectory:      ptr.To(DefaultPluginDirectory),
		AllowWritablePlugins: ptr.To(false),
		VerdictCache:         ptr.To(true),
		Topology:             ptr.To(allocation.TopologyPrefer),
		BestDevicesWait:      &metav1.Duration{Duration: 10 * time.Minute},
		Quota:                ptr.To(frameworkplugin.QuotaEnforce),
		SealKey:              ptr.To(""),
		EvictUnallocated:     ptr.To(false),
		SearchBudget:         &metav1.Duration{Duration: allocation.DefaultSearchBudgets.Node},
		CycleBudget:          &metav1.Duration{Duration: allocation.DefaultSearchBudgets.Cycle},
		SecurePort:           ptr.To[int32](0),
		Claims:               ptr.To(claims.ModeUpstream),
		ClaimLevels:          ptr.To(slices.Clone(claims.DefaultLevels)),
	}
}

// SetDefaults sets the fields that are not set. It changes nothing the second time.
func SetDefaults(args *KubeDeviceArgs) {
	defaults := Defaults()
	for _, s := range settings {
		if field := s.pointer(args); field.IsNil() {
			field.Set(s.pointer(defaults))
		}
	}
	if args.SealMode == nil && *args.SealKey == "" {
		args.SealMode = ptr.To(seal.Off)
	}
}

// jsonName returns the name of a field in a file.
func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
