// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"
)

// The fields of NVIDIA's file, api/config/v1 of k8s-device-plugin v0.19.0. Pointers tell what is
// not said from what is empty.
type file struct {
	Version   string   `json:"version"`
	Flags     flags    `json:"flags"`
	Resources *anyMap  `json:"resources"`
	Sharing   *sharing `json:"sharing"`
	Imex      *imex    `json:"imex"`
	Ours      ours     `json:"kubedevice"`
}

type anyMap = map[string]any

type flags struct {
	MIGStrategy             *string      `json:"migStrategy"`
	FailOnInitError         *bool        `json:"failOnInitError"`
	MPSRoot                 *string      `json:"mpsRoot"`
	NvidiaDriverRoot        *string      `json:"nvidiaDriverRoot"`
	NvidiaDevRoot           *string      `json:"nvidiaDevRoot"`
	GDRCopyEnabled          *bool        `json:"gdrcopyEnabled"`
	GDSEnabled              *bool        `json:"gdsEnabled"`
	MOFEDEnabled            *bool        `json:"mofedEnabled"`
	UseNodeFeatureAPI       *bool        `json:"useNodeFeatureAPI"`
	DeviceDiscoveryStrategy *string      `json:"deviceDiscoveryStrategy"`
	Plugin                  *pluginFlags `json:"plugin"`
	GFD                     *anyMap      `json:"gfd"`
}

type pluginFlags struct {
	PassDeviceSpecs     *bool      `json:"passDeviceSpecs"`
	DeviceListStrategy  strategies `json:"deviceListStrategy"`
	DeviceIDStrategy    *string    `json:"deviceIDStrategy"`
	CDIAnnotationPrefix *string    `json:"cdiAnnotationPrefix"`
	NvidiaCTKPath       *string    `json:"nvidiaCTKPath"`
	ContainerDriverRoot *string    `json:"containerDriverRoot"`
}

type imex struct {
	ChannelIDs []int `json:"channelIDs"`
	Required   bool  `json:"required"`
}

// strategies are one word or a list of them.
type strategies []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *strategies) UnmarshalJSON(content []byte) error {
	var one string
	if err := json.Unmarshal(content, &one); err == nil {
		*s = strategies{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(content, &list); err != nil {
		return errors.New("flags.plugin.deviceListStrategy is neither a word nor a list of words")
	}
	*s = list
	return nil
}

// Parse reads the content of a file.
func Parse(content []byte) (Config, error) {
	var f file
	if err := yaml.UnmarshalStrict(content, &f); err != nil {
		return Config{}, err
	}
	r := reader{config: Config{MIG: None}}
	if f.Version != "" && f.Version != "v1" {
		r.complain("version is %q: use v1", f.Version)
	}
	r.flags(f.Flags)
	r.plugin(f.Flags.Plugin)
	if f.Resources != nil && len(*f.Resources) > 0 {
		r.complain("resources is not supported: resources are called nvidia.com/gpu and nvidia.com/mig-<profile> " +
			"(NVIDIA's plugin ignores the field)")
	}
	r.sharing(f.Sharing)
	if f.Imex != nil && (len(f.Imex.ChannelIDs) > 0 || f.Imex.Required) {
		r.complain("imex is not supported: leave it out, and use NVIDIA's DRA driver for IMEX channels")
	}
	r.layouts(f.Ours.MIGLayouts)
	return r.config, errors.Join(r.problems...)
}

// reader makes a configuration of a file.
type reader struct {
	config   Config
	problems []error
}

func (r *reader) complain(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...))
}

func (r *reader) note(field, why string) {
	r.config.Notes = append(r.config.Notes, field+" has no effect here: "+why)
}

func (r *reader) flags(f flags) {
	if f.MIGStrategy != nil {
		r.config.MIG = Strategy(*f.MIGStrategy)
		if !slices.Contains([]Strategy{None, Single, Mixed}, r.config.MIG) {
			r.complain("flags.migStrategy is %q: use none, single or mixed", *f.MIGStrategy)
		}
	}
	if f.FailOnInitError != nil {
		r.note("flags.failOnInitError", "kubecri goes on in any case, says in its log and in /readyz what is wrong, "+
			"and tries again")
	}
	if f.MPSRoot != nil {
		r.note("flags.mpsRoot", "there is no MPS")
	}
	r.root("flags.nvidiaDriverRoot", f.NvidiaDriverRoot)
	r.root("flags.nvidiaDevRoot", f.NvidiaDevRoot)
	r.off("flags.gdrcopyEnabled", f.GDRCopyEnabled)
	r.off("flags.gdsEnabled", f.GDSEnabled)
	r.off("flags.mofedEnabled", f.MOFEDEnabled)
	if s := f.DeviceDiscoveryStrategy; s != nil && !slices.Contains([]string{"", "auto", "nvml"}, *s) {
		r.complain("flags.deviceDiscoveryStrategy is %q: use auto or nvml, the others are not supported", *s)
	}
	if f.UseNodeFeatureAPI != nil {
		r.note("flags.useNodeFeatureAPI", "it is GPU feature discovery's")
	}
	if f.GFD != nil {
		r.note("flags.gfd", "it is GPU feature discovery's")
	}
}

// root refuses a driver that is not where the dynamic linker looks.
func (r *reader) root(field string, root *string) {
	if root != nil && *root != "/" && *root != "" {
		r.complain("%s is %q, which is not supported: use /, and LD_LIBRARY_PATH of kubecri for a driver elsewhere",
			field, *root)
	}
}

// off refuses what is not there when it is switched on.
func (r *reader) off(field string, enabled *bool) {
	if enabled != nil && *enabled {
		r.complain("%s is true, which is not supported: use false", field)
	}
}

func (r *reader) plugin(f *pluginFlags) {
	if f == nil {
		f = &pluginFlags{}
	}
	if f.PassDeviceSpecs != nil {
		r.config.PassDeviceSpecs = *f.PassDeviceSpecs
	}
	for _, strategy := range f.DeviceListStrategy {
		switch strategy {
		case "envvar":
			r.config.EnvVar = true
		case "volume-mounts":
			r.config.VolumeMounts = true
		case "cdi-cri":
			r.config.CDI = true
		case "cdi-annotations":
			r.complain("flags.plugin.deviceListStrategy is cdi-annotations, which is not supported: use cdi-cri, by " +
				"which the container runtime gets the same CDI devices")
		default:
			r.complain("flags.plugin.deviceListStrategy is %q: use envvar, volume-mounts or cdi-cri", strategy)
		}
	}
	if len(f.DeviceListStrategy) == 0 {
		r.config.EnvVar = true
	}
	if s := f.DeviceIDStrategy; s != nil && *s != "uuid" {
		r.complain("flags.plugin.deviceIDStrategy is %q, which is not supported: use uuid, since an index can be "+
			"another GPU's after a reboot", *s)
	}
	for _, field := range []struct {
		name  string
		value *string
	}{
		{"flags.plugin.cdiAnnotationPrefix", f.CDIAnnotationPrefix},
		{"flags.plugin.nvidiaCTKPath", f.NvidiaCTKPath},
		{"flags.plugin.containerDriverRoot", f.ContainerDriverRoot},
	} {
		if field.value != nil {
			r.note(field.name, "it is for CDI files that NVIDIA's plugin makes; use nvidia-ctk cdi generate")
		}
	}
}
