// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/selector"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

// Name is the plugin's name in scheduler configurations, logs and metrics.
const Name = "KubeDeviceClaims"

// Mode says who chooses devices for claims.
type Mode string

// The modes.
const (
	// ModeUpstream leaves claims to upstream's plugin.
	ModeUpstream Mode = "upstream"
	// ModeKubeDevice has this plugin choose, in the place of upstream's.
	ModeKubeDevice Mode = "kubedevice"
)

// Set parses a mode.
func (m *Mode) Set(text string) error {
	switch mode := Mode(text); mode {
	case ModeUpstream, ModeKubeDevice:
		*m = mode
		return nil
	}
	return fmt.Errorf("must be %q or %q", ModeUpstream, ModeKubeDevice)
}

// Ledger knows which devices that slices publish are KubeDevice's: claims do not get them.
type Ledger interface {
	// Ours returns these devices. The caller does not change them.
	Ours(ctx context.Context) (sets.Set[structured.DeviceID], error)
}

// Plugin is the framework plugin of one profile.
type Plugin struct {
	upstream  *dynamicresources.DynamicResources
	handle    fwk.Handle
	ledger    Ledger
	manager   *manager
	features  feature.Features
	selectors *selector.Cache
	inventory *pool.Inventory
	options   allocator.Options
}

var (
	_ fwk.PreEnqueuePlugin         = (*Plugin)(nil)
	_ fwk.PreFilterPlugin          = (*Plugin)(nil)
	_ fwk.FilterPlugin             = (*Plugin)(nil)
	_ fwk.PostFilterPlugin         = (*Plugin)(nil)
	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
	_ fwk.ScorePlugin              = (*Plugin)(nil)
	_ fwk.ReservePlugin            = (*Plugin)(nil)
	_ fwk.EnqueueExtensions        = (*Plugin)(nil)
	_ fwk.PreBindPlugin            = (*Plugin)(nil)
	_ fwk.SignPlugin               = (*Plugin)(nil)
)

// New returns the plugin of the profile that has this handle, and that lacks upstream's plugin.
// args are the arguments that upstream's plugin would have.
func New(
	ctx context.Context, args *config.DynamicResourcesArgs, levels Levels, handle fwk.Handle, ledger Ledger,
) (*Plugin, error) {
	metrics.Register()
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	m := newManager(handle.SharedDRAManager(), ledger)
	made, err := dynamicresources.New(ctx, args, managed{handle, m}, features)
	if err != nil {
		return nil, fmt.Errorf("make upstream's plugin %s: %w", dynamicresources.Name, err)
	}
	allocates := dynamicresources.AllocatorFeatures(features)
	return &Plugin{
		upstream: made.(*dynamicresources.DynamicResources), handle: handle, ledger: ledger, manager: m,
		features: features,
		selectors: selector.NewCache(cel.Features{
			EnableConsumableCapacity: features.EnableDRAConsumableCapacity,
			EnableListTypeAttributes: features.EnableDRAListTypeAttributes,
		}),
		inventory: pool.NewInventory(allocates),
		options:   allocator.Options{Features: allocates, Levels: levels},
	}, nil
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// ArgsIn returns the arguments that a profile has for upstream's plugin, which are those of ours.
func ArgsIn(profile *config.KubeSchedulerProfile) *config.DynamicResourcesArgs {
	for i := range profile.PluginConfig {
		if args, ok := profile.PluginConfig[i].Args.(*config.DynamicResourcesArgs); ok {
			return args
		}
	}
	return &config.DynamicResourcesArgs{
		FilterTimeout: &metav1.Duration{Duration: config.DynamicResourcesFilterTimeoutDefault},
	}
}
