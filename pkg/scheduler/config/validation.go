// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// leastBudget is a search budget that still finds something.
const leastBudget = 100 * time.Microsecond

// Validate validates arguments that have their defaults. Each error names the field below path, its
// value and what is allowed.
func Validate(path *field.Path, args *KubeDeviceArgs) field.ErrorList {
	var errs field.ErrorList
	invalid := func(name string, value any, format string, a ...any) {
		errs = append(errs, field.Invalid(path.Child(name), value, fmt.Sprintf(format, a...)))
	}
	if wait := args.BestDevicesWait.Duration; wait < 0 {
		invalid("bestDevicesWait", wait.String(), "must be 0s, which is for ever, or more")
	}
	if topology := *args.Topology; topology.Set(string(topology)) != nil {
		errs = append(errs, field.NotSupported(path.Child("topology"), topology,
			[]allocation.Topology{allocation.TopologyPrefer, allocation.TopologyRequire}))
	}
	quotas := []frameworkplugin.QuotaMode{
		frameworkplugin.QuotaWarn, frameworkplugin.QuotaEnforce, frameworkplugin.QuotaEverywhere,
	}
	if quota := *args.Quota; quota.Set(string(quota)) != nil {
		errs = append(errs, field.NotSupported(path.Child("quota"), quota, quotas))
	}
	switch mode := ptr.Deref(args.SealMode, seal.Enforce); {
	case mode.Set(string(mode)) != nil:
		errs = append(errs, field.NotSupported(path.Child("sealMode"), mode,
			[]seal.Mode{seal.Off, seal.Warn, seal.Enforce}))
	case mode != seal.Off && *args.SealKey == "":
		invalid("sealMode", mode,
			"there are no keys to verify seals with: name a file of keys in sealKey, or use %q", seal.Off)
	}
	node, cycle := args.SearchBudget.Duration, args.CycleBudget.Duration
	if node < leastBudget {
		invalid("searchBudget", node.String(), "must be %v or more", leastBudget)
	}
	if cycle < node {
		invalid("cycleBudget", cycle.String(), "must be searchBudget, which is %v, or more", node)
	}
	if port := *args.SecurePort; port < 0 || port > 65535 {
		invalid("securePort", port, "must be from 1 to 65535, or 0 for no API")
	}
	if mode := *args.Claims; mode.Set(string(mode)) != nil {
		errs = append(errs, field.NotSupported(path.Child("claims"), mode,
			[]claims.Mode{claims.ModeUpstream, claims.ModeKubeDevice}))
	}
	if err := args.ClaimLevels.Validate(); err != nil {
		invalid("claimLevels", args.ClaimLevels.String(), "%v", err)
	}
	return errs
}
