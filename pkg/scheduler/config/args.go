// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the settings of the framework plugin: the type of its arguments in a
// KubeSchedulerConfiguration, their defaults and their validation, and the flags that set the same.
//
// Like the arguments of upstream's plugins they belong to kubescheduler.config.k8s.io/v1, of which
// upstream decodes the arguments of a plugin by the plugin's name, strictly: a field that is not
// known, or occurs twice, is an error. The plugins of kubernetes-sigs/scheduler-plugins do the same
// (apis/config/v1/register.go there).
package config

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// KubeDeviceArgs are the arguments of the plugin in the pluginConfig of a profile. A field that is
// nil is not set: see SetDefaults. The tag flag is the name of the flag that sets the field in all
// profiles.
//
// There is one type for the versioned and for the internal form, as long as there is one version.
type KubeDeviceArgs struct {
	metav1.TypeMeta `json:",inline"`

	// PluginDirectory has the device scheduler plugins, *.so, which are loaded in the order of
	// their file names.
	PluginDirectory *string `json:"pluginDirectory,omitempty" flag:"devschedpath"`
	// AllowWritablePlugins loads plugin files that users other than root may write or replace, too.
	AllowWritablePlugins *bool `json:"allowWritablePlugins,omitempty" flag:"allow-writable-plugins"`
	// VerdictCache caches on which nodes the devices for a pod fit.
	VerdictCache *bool `json:"verdictCache,omitempty" flag:"device-verdict-cache"`
	// Topology says which devices a pod gets that counts devices and says nothing of topology.
	Topology *allocation.Topology `json:"topology,omitempty" flag:"device-topology"`
	// BestDevicesWait is how long a pod waits for the best devices of all nodes where others would
	// do; 0 is for ever.
	BestDevicesWait *metav1.Duration `json:"bestDevicesWait,omitempty" flag:"best-devices-wait"`
	// Quota says which pods wait that request devices beyond their limits.
	Quota *frameworkplugin.QuotaMode `json:"quota,omitempty" flag:"device-quota"`
	// SealKey is the path of a PEM file of private keys that seal allocations.
	SealKey *string `json:"sealKey,omitempty" flag:"device-seal-key"`
	// SealMode says what a bound pod without a valid seal holds. With a key and without a mode, the
	// file of keys may state it.
	SealMode *seal.Mode `json:"sealMode,omitempty" flag:"device-seal-mode"`
	// EvictUnallocated evicts pods that were bound without the devices that they request.
	EvictUnallocated *bool `json:"evictUnallocated,omitempty" flag:"device-evict-unallocated"`
	// SearchBudget is how long to search for devices for one pod on one node.
	SearchBudget *metav1.Duration `json:"searchBudget,omitempty" flag:"device-search-budget"`
	// CycleBudget is the same for all nodes together.
	CycleBudget *metav1.Duration `json:"cycleBudget,omitempty" flag:"device-cycle-budget"`
	// SecurePort is the port of the read API; 0 for none.
	SecurePort *int32 `json:"securePort,omitempty" flag:"devices-secure-port"`
	// Claims says who chooses devices for ResourceClaims.
	Claims *claims.Mode `json:"claims,omitempty" flag:"device-claims"`
	// ClaimLevels are the attributes by whose values devices of claims are close, the closest
	// first.
	ClaimLevels *claims.Levels `json:"claimLevels,omitempty" flag:"device-claim-levels"`
}

var _ runtime.Object = (*KubeDeviceArgs)(nil)

// Of returns the arguments of a profile, with all defaults.
func Of(profile *schedulerconfig.KubeSchedulerProfile) *KubeDeviceArgs {
	for i := range profile.PluginConfig {
		if args, ok := profile.PluginConfig[i].Args.(*KubeDeviceArgs); ok {
			args = args.DeepCopy()
			SetDefaults(args)
			return args
		}
	}
	return Defaults()
}

// DeepCopy returns a copy that shares nothing with the arguments.
func (a *KubeDeviceArgs) DeepCopy() *KubeDeviceArgs {
	copied := *a
	for _, s := range settings {
		if from := s.pointer(a); !from.IsNil() {
			value := reflect.New(from.Type().Elem())
			value.Elem().Set(from.Elem())
			if list := from.Elem(); list.Kind() == reflect.Slice { // no field has another reference
				value.Elem().Set(reflect.AppendSlice(reflect.MakeSlice(list.Type(), 0, list.Len()), list))
			}
			s.pointer(&copied).Set(value)
		}
	}
	return &copied
}

// DeepCopyObject implements runtime.Object.
func (a *KubeDeviceArgs) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// setting is one field of KubeDeviceArgs.
type setting struct {
	index int
	field string // its name in the file
	flag  string // without dashes
}

// settings are all fields, in order.
var settings = func() []setting {
	var all []setting
	args := reflect.TypeFor[KubeDeviceArgs]()
	for i := range args.NumField() {
		if flag, ok := args.Field(i).Tag.Lookup("flag"); ok {
			all = append(all, setting{index: i, field: jsonName(args.Field(i)), flag: flag})
		}
	}
	return all
}()

// pointer returns the pointer that the field is.
func (s setting) pointer(args *KubeDeviceArgs) reflect.Value {
	return reflect.ValueOf(args).Elem().Field(s.index)
}

// Differences returns the names of the fields that differ.
func Differences(a, b *KubeDeviceArgs) []string {
	var names []string
	for _, s := range settings {
		if !reflect.DeepEqual(s.pointer(a).Interface(), s.pointer(b).Interface()) {
			names = append(names, s.field)
		}
	}
	return names
}
