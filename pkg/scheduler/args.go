// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
)

// completeArgs completes the plugin's arguments in all profiles that have the plugin: flags win
// over what a profile says; one that says nothing has the arguments of the first profile with some,
// and what is set nowhere has its default. It returns what the flags have overridden. It changes
// nothing the second time.
func completeArgs(profiles []configv1.KubeSchedulerProfile, flags *config.Flags) []config.Overridden {
	first := &config.KubeDeviceArgs{}
	for i := range profiles {
		if args := argsIn(&profiles[i]); args != nil {
			first = args.DeepCopy()
			break
		}
	}
	var overridden []config.Overridden
	for i := range profiles {
		profile := &profiles[i]
		if disabledByName(profile.Plugins.MultiPoint) {
			continue
		}
		args := argsIn(profile)
		if args == nil {
			args = first.DeepCopy()
			profile.PluginConfig = append(profile.PluginConfig, configv1.PluginConfig{
				Name: frameworkplugin.Name, Args: runtime.RawExtension{Object: args},
			})
		}
		args.SetGroupVersionKind(configv1.SchemeGroupVersion.WithKind(config.Kind))
		found := flags.Override(args)
		config.SetDefaults(args)
		if overridden == nil {
			overridden = found
		}
	}
	return overridden
}

// argsIn returns the plugin's arguments in a profile, or nil.
func argsIn(profile *configv1.KubeSchedulerProfile) *config.KubeDeviceArgs {
	for i := range profile.PluginConfig {
		if args, ok := profile.PluginConfig[i].Args.Object.(*config.KubeDeviceArgs); ok {
			return args
		}
	}
	return nil
}

// checkArgs validates the plugin's arguments in the configuration that was read, and logs which of
// them flags have overridden. A contradiction between file and flag is no error: so a value can be
// tried without a change of the file, which several schedulers may share.
func checkArgs(flags *config.Flags) error {
	read := lastRead.Load()
	for _, o := range read.overridden {
		klog.InfoS("A flag wins over the configuration file", logkey.Field, o.Field, logkey.Overridden, o.File,
			logkey.Flag, o.Flag)
	}
	var errs field.ErrorList
	var first *config.KubeDeviceArgs
	for i := range read.Profiles {
		profile := &read.Profiles[i]
		args := argsIn(profile)
		if args == nil {
			continue
		}
		path := field.NewPath("profiles").Index(i).Child("pluginConfig").Key(frameworkplugin.Name).Child("args")
		if first == nil {
			first = args
			errs = config.Validate(path, args)
		}
		for _, name := range config.Differences(first, args) {
			errs = append(errs, field.Forbidden(path.Child(name), "it must be the same in all profiles"))
		}
	}
	for _, err := range errs {
		if flag := flags.Sets(err.Field[strings.LastIndexByte(err.Field, '.')+1:]); flag != "" {
			err.Detail += "; it is set by " + flag
		}
	}
	return errs.ToAggregate()
}
