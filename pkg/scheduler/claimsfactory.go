// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/ledger"
)

// newClaimsFactory returns the factory of the plugin for claims. The arguments that a profile has
// for upstream's plugin are those of ours: as arguments of ours in the configuration they would
// have a kind of their own. The framework makes plugins in any order, so the ledger may be empty
// until all are made.
func newClaimsFactory(ledger claims.Ledger) frameworkruntime.PluginFactory {
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		profiles, err := configured{}.Profiles()
		if err != nil {
			return nil, err
		}
		for i := range profiles {
			if profiles[i].SchedulerName == handle.ProfileName() {
				if !choosesForClaims(&profiles[i]) {
					return nil, fmt.Errorf("it is enabled by the argument \"claims: %s\" of %s, not by its name",
						claims.ModeKubeDevice, frameworkplugin.Name)
				}
				levels := *config.Of(&profiles[i]).ClaimLevels
				return claims.New(ctx, claims.ArgsIn(&profiles[i]), levels, handle, ledger)
			}
		}
		return nil, fmt.Errorf("there is no profile %q", handle.ProfileName())
	}
}

// madeLedger is the ledger that all profiles share, empty before it is made, and in a scheduler
// whose profiles are all without our other plugin.
type madeLedger struct{ atomic.Pointer[ledger.Ledger] }

// Ours implements claims.Ledger.
func (m *madeLedger) Ours(ctx context.Context) (sets.Set[structured.DeviceID], error) {
	if made := m.Load(); made != nil {
		return made.Ours(ctx)
	}
	return nil, nil
}

// choosesForClaims reports whether the arguments of a profile enable the plugin.
func choosesForClaims(profile *schedulerconfig.KubeSchedulerProfile) bool {
	return *config.Of(profile).Claims == claims.ModeKubeDevice
}
