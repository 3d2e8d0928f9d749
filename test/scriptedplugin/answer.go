// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scriptedplugin

import (
	"fmt"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// parts are the commands that say what Allocate answers for a container. Each gets its arguments,
// of which there are as many as wanted, or more where more is set.
var parts = map[string]struct {
	wanted int
	more   bool
	add    func(to *pluginapi.ContainerAllocateResponse, args []string) error
}{
	"empty": {add: func(*pluginapi.ContainerAllocateResponse, []string) error { return nil }},
	"node": {wanted: 3, add: func(to *pluginapi.ContainerAllocateResponse, args []string) error {
		to.Devices = append(to.Devices, &pluginapi.DeviceSpec{
			HostPath: args[0], ContainerPath: args[1], Permissions: args[2],
		})
		return nil
	}},
	"mount": {wanted: 2, more: true, add: func(to *pluginapi.ContainerAllocateResponse, args []string) error {
		readOnly := len(args) == 3 && args[2] == "ro"
		if len(args) > 2 && !readOnly {
			return fmt.Errorf("a mount is not %q", args[2:])
		}
		to.Mounts = append(to.Mounts, &pluginapi.Mount{
			HostPath: args[0], ContainerPath: args[1], ReadOnly: readOnly,
		})
		return nil
	}},
	"env": {wanted: 1, more: true, add: func(to *pluginapi.ContainerAllocateResponse, args []string) error {
		return set(&to.Envs, args)
	}},
	"annotation": {wanted: 1, add: func(to *pluginapi.ContainerAllocateResponse, args []string) error {
		return set(&to.Annotations, args)
	}},
	"cdi": {wanted: 1, more: true, add: func(to *pluginapi.ContainerAllocateResponse, args []string) error {
		for _, name := range args {
			to.CdiDevices = append(to.CdiDevices, &pluginapi.CDIDevice{Name: name})
		}
		return nil
	}},
}

// set sets NAME=VALUE of each argument.
func set(values *map[string]string, args []string) error {
	if *values == nil {
		*values = map[string]string{}
	}
	for _, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("%q has no value", arg)
		}
		(*values)[name] = value
	}
	return nil
}

// answer adds to what Allocate answers.
func (p *Plugin) answer(name string, args []string) error {
	switch name {
	case "nothing":
		p.answers = nil
	case "another":
		p.answers = append(p.answers, &pluginapi.ContainerAllocateResponse{})
	default:
		part, known := parts[name]
		switch {
		case !known:
			return fmt.Errorf("there is no such command")
		case len(args) < part.wanted || len(args) > part.wanted && !part.more:
			return fmt.Errorf("it has %d arguments, want %d", len(args), part.wanted)
		}
		if len(p.answers) == 0 {
			p.answers = append(p.answers, &pluginapi.ContainerAllocateResponse{})
		}
		if err := part.add(p.answers[len(p.answers)-1], args); err != nil {
			return err
		}
	}
	answers := p.answers
	p.Answer = func([]string) []*pluginapi.ContainerAllocateResponse { return answers }
	return nil
}
