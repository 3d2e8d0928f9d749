// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// visibleDevices is the variable by which NVIDIA's container runtime adds devices.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// env sets the variable in the container main.
func env(value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: visibleDevices,
			Value: value})
	}
}

// socketsVariable has Ascend's runtime mount the sockets of container runtimes, at any value.
const socketsVariable = "MOUNT_BY_RUNTIME_FOR_DP"

// obeys returns what a vendor's runtime takes from an environment, as far as it requests devices.
type obeys func(env []string) []string

// The runtimes, as their sources say.

// lastOf takes the last variable of a name.
func lastOf(name string, nothing ...string) obeys {
	return func(env []string) (taken []string) {
		for _, entry := range env {
			if value, is := strings.CutPrefix(entry, name+"="); is {
				taken = []string{value}
			}
		}
		return slices.DeleteFunc(taken, func(value string) bool { return slices.Contains(nothing, value) })
	}
}

// amds takes the last variable of the name or with the prefix (container-toolkit, getAMDEnv).
func amds(env []string) (taken []string) {
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if name == "AMD_VISIBLE_DEVICES" || strings.HasPrefix(name, "DOCKER_RESOURCE_") {
			taken = []string{value}
		}
	}
	return slices.DeleteFunc(taken, func(value string) bool { return value != "all" })
}

// habanas takes the first entry that begins with the name (habana-container-runtime,
// filterDevicesByENV), and where it is configured so, the last of the name (getDevicesFromEnvvar).
func habanas(env []string) (taken []string) {
	for _, entry := range env {
		if strings.HasPrefix(entry, "HABANA_VISIBLE_DEVICES") {
			if _, value, _ := strings.Cut(entry, "="); value == "all" {
				taken = append(taken, value)
			}
			break
		}
	}
	return append(taken, lastOf("HABANA_VISIBLE_DEVICES", "none")(env)...)
}

// ascends takes the last of the name, and in older releases the first with a name of a chip
// (getValueByDeviceKey).
func ascends(env []string) []string {
	for _, entry := range env {
		if value, is := strings.CutPrefix(entry, "ASCEND_VISIBLE_DEVICES=Ascend"); is {
			return []string{"Ascend" + value}
		}
	}
	return lastOf("ASCEND_VISIBLE_DEVICES", "", "void")(env)
}

// runtimes are those of the vendors.
var runtimes = map[string]obeys{
	"NVIDIA": lastOf(visibleDevices, "", "void", "none"), "AMD": amds, "Habana": habanas, "Ascend": ascends,
}

// readConfigJSON succeeds if a vendor's runtime takes devices from the environment of a running
// container of the pod that was created last, by config.json. The runtime is one of runtimes, or
// takes the last value of a variable that is not one for nothing.
func readConfigJSON(ctx context.Context, p *trial, arguments struct {
	Container string   `json:"container"`
	Runtime   string   `json:"runtime"`
	Variable  string   `json:"variable"`
	Nothing   []string `json:"nothing"`
}) (Got, error) {
	runtime, known := runtimes[arguments.Runtime]
	if arguments.Variable != "" {
		runtime, known = lastOf(arguments.Variable, arguments.Nothing...), true
	}
	if !known {
		return Got{}, fmt.Errorf("there is no runtime %q", arguments.Runtime)
	}
	return p.takes(ctx, p.created.Name, arguments.Container, runtime)
}

// takes returns what a runtime takes from the environment of a running container. It succeeds if
// that requests devices.
func (s *Stage) takes(ctx context.Context, pod, container string, runtime obeys) (Got, error) {
	spec, err := s.runtimeSpecOf(ctx, pod, container)
	if err != nil {
		return Got{}, err
	}
	env := slices.DeleteFunc(slices.Clone(spec.Process.Env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !strings.Contains(name, "_DEVICES") && !strings.Contains(name, "DOCKER_") &&
			!strings.Contains(name, "NVIDIA_") && name != socketsVariable
	})
	if taken := runtime(spec.Process.Env); len(taken) > 0 {
		return Got{Succeeds, fmt.Sprintf("config.json has %q, of which the runtime takes %q", env, taken)}, nil
	}
	return Got{NoEffect, fmt.Sprintf("config.json has %q, of which the runtime takes nothing", env)}, nil
}
