// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"reflect"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	upstream "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"

	requestnames "github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/whatif"
)

// enableByDefault enables the plugin in every profile of every scheduler configuration that this
// process reads, the built-in one included, also where a profile disables all plugins with '*'. A
// profile that disables it by name stays without it. It then adds the profile of
// frameworkplugin.SchedulerName, and completes the plugin's arguments in all profiles. In these,
// NodeResourcesFit leaves the resources of [requestnames.Resources] to our plugin.
//
// It changes the process-wide schemes of scheduler configurations, the only place through which a
// configuration passes in all cases: no --config, --config, and --write-config-to.
func enableByDefault(flags *config.Flags) {
	config.AddToScheme(scheme.Scheme)
	config.AddToScheme(upstream.GetPluginArgConversionScheme())
	scheme.Scheme.AddTypeDefaultingFunc(&configv1.KubeSchedulerConfiguration{}, func(obj any) {
		read := obj.(*configv1.KubeSchedulerConfiguration)
		upstream.SetObjectDefaults_KubeSchedulerConfiguration(read)
		for i := range read.Profiles {
			enableInProfile(read.Profiles[i].Plugins)
			leaveParts(&read.Profiles[i])
		}
		read.Profiles = withOwnName(read.Profiles)
		overridden := completeArgs(read.Profiles, flags)
		for i := range read.Profiles {
			chooseForClaims(&read.Profiles[i])
		}
		lastRead.Store(&configuration{read.DeepCopy(), overridden})
	})
}

// configuration is one that this process has read, with all defaults.
type configuration struct {
	*configv1.KubeSchedulerConfiguration
	overridden []config.Overridden // by flags
}

// lastRead is the configuration that this process has read last.
var lastRead atomic.Pointer[configuration]

// configured is the scheduler's configuration.
type configured struct{}

var _ whatif.Profiles = configured{}

// Profiles implements whatif.Profiles.
func (configured) Profiles() ([]schedulerconfig.KubeSchedulerProfile, error) {
	read := lastRead.Load()
	if read == nil {
		return nil, errors.New("no scheduler configuration was read yet")
	}
	var internal schedulerconfig.KubeSchedulerConfiguration
	if err := scheme.Scheme.Convert(read.KubeSchedulerConfiguration.DeepCopy(), &internal, nil); err != nil {
		return nil, err
	}
	return internal.Profiles, nil
}

// enableInProfile adds the plugin to a profile that upstream has defaulted already. It changes
// nothing the second time.
func enableInProfile(plugins *configv1.Plugins) {
	enable(&plugins.MultiPoint, beforeResources(plugins.MultiPoint.Enabled))
	if !disabledByName(plugins.MultiPoint) {
		// First: bind plugins run in order until one binds, and DefaultBinder would do it without
		// the allocation.
		enable(&plugins.Bind, 0)
		// First: preemption reads what PostFilter adds.
		enable(&plugins.PostFilter, 0)
	}
}

// leaveParts has NodeResourcesFit leave to our plugin the extended resources that it compiles to
// requests for devices: no node lists them, so no node would fit a pod with them. It changes
// nothing the second time, nor a profile without our plugin.
func leaveParts(profile *configv1.KubeSchedulerProfile) {
	if disabledByName(profile.Plugins.MultiPoint) {
		return
	}
	for i := range profile.PluginConfig {
		if args, ok := profile.PluginConfig[i].Args.Object.(*configv1.NodeResourcesFitArgs); ok {
			for _, name := range requestnames.Resources() {
				if !slices.Contains(args.IgnoredResources, name) {
					args.IgnoredResources = append(args.IgnoredResources, name)
				}
			}
		}
	}
}

// withOwnName adds a copy of the profile default-scheduler under frameworkplugin.SchedulerName. It
// does not where there is a profile of that name, nor where the profile default-scheduler is
// without the plugin or its binding: pods would be bound without devices under that name, too. It
// changes nothing the second time.
func withOwnName(profiles []configv1.KubeSchedulerProfile) []configv1.KubeSchedulerProfile {
	find := func(name string) int {
		return slices.IndexFunc(profiles, func(p configv1.KubeSchedulerProfile) bool {
			return ptr.Deref(p.SchedulerName, "") == name
		})
	}
	at := find(v1.DefaultSchedulerName)
	if at < 0 || find(frameworkplugin.SchedulerName) >= 0 ||
		disabledByName(profiles[at].Plugins.MultiPoint) || disabledByName(profiles[at].Plugins.Bind) {
		return profiles
	}
	own := profiles[at].DeepCopy()
	own.SchedulerName = ptr.To(frameworkplugin.SchedulerName)
	return append(profiles, *own)
}

// chooseForClaims puts our plugin for claims in the place of upstream's, with its weight, in a
// profile whose arguments say so. A profile that has upstream's plugin disabled stays without
// either. It changes nothing the second time.
//
// The arguments of upstream's plugin stay where they are: they are those of ours, see
// newClaimsFactory.
func chooseForClaims(profile *configv1.KubeSchedulerProfile) {
	args := argsIn(profile)
	if args == nil || *args.Claims != claims.ModeKubeDevice {
		return
	}
	ours := func(p configv1.Plugin) bool { return p.Name == claims.Name }
	upstreams := func(p configv1.Plugin) bool { return p.Name == names.DynamicResources }
	if multi := &profile.Plugins.MultiPoint; slices.ContainsFunc(multi.Enabled, upstreams) {
		// Ours is there when the configuration was written by a scheduler that had read it.
		multi.Enabled = slices.DeleteFunc(multi.Enabled, ours)
	}
	rename := func(plugins []configv1.Plugin) {
		for i := range plugins {
			if upstreams(plugins[i]) {
				plugins[i].Name = claims.Name
			}
		}
	}
	sets := reflect.ValueOf(profile.Plugins).Elem()
	for i := range sets.NumField() {
		if set, ok := sets.Field(i).Addr().Interface().(*configv1.PluginSet); ok {
			rename(set.Enabled)
			if set != &profile.Plugins.MultiPoint {
				rename(set.Disabled)
			}
		}
	}
}

// beforeResources returns the index after the plugins that cheaply reject a node for good, as
// NodeAffinity does, and before those that add up requests: a node without a free device is known
// from the verdict cache.
func beforeResources(enabled []configv1.Plugin) int {
	index := slices.IndexFunc(enabled, func(p configv1.Plugin) bool { return p.Name == names.NodeResourcesFit })
	if index < 0 {
		return len(enabled)
	}
	return index
}

func enable(set *configv1.PluginSet, position int) {
	if !disabledByName(*set) && !slices.ContainsFunc(set.Enabled, isOurs) {
		set.Enabled = slices.Insert(set.Enabled, position, configv1.Plugin{Name: frameworkplugin.Name})
	}
}

func disabledByName(set configv1.PluginSet) bool { return slices.ContainsFunc(set.Disabled, isOurs) }

func isOurs(p configv1.Plugin) bool { return p.Name == frameworkplugin.Name }
