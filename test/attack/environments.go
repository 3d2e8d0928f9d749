// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// socketsVariable has Ascend's runtime mount the sockets of container runtimes, at any value.
const socketsVariable = "MOUNT_BY_RUNTIME_FOR_DP"

// obeys returns what a vendor's runtime takes from an environment, as far as it asks for devices.
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

// environments are attempts by variables of image and pod, of each vendor that has a runtime. They
// succeed by the config.json that the OCI runtime gets.
func environments() []*Attempt {
	const refused = "decides which devices the container runtime gives it, and cannot be overridden"
	nvidias := lastOf(visibleDevices, "", "void", "none")
	both := func(image string, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			of(image)(pod)
			env(value)(pod)
		}
	}
	sets := func(name, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: value})
		}
	}
	var attempts []*Attempt
	for _, way := range []struct {
		id, what string
		shape    func(pod *corev1.Pod)
		runtime  obeys
		// proxy says that the proxy refuses the container, whose image NRI can override, and always
		// that both do.
		proxy, always bool
	}{
		{"firewall-image-twice", "runs an image that has the variable twice, with nothing and all",
			of(imageTwice), nvidias, false, false},
		{"firewall-image-pod", "runs an image that has the variable, and sets it, too",
			both(imageVariable, "all"), nvidias, false, false},
		{"firewall-image-pod-differ", "runs an image that has it twice, and sets it to the numbers of two GPUs",
			both(imageTwiceReversed, "0,1"), nvidias, false, false},
		{"firewall-image-pod-empty", "runs an image that has it, and sets it to nothing and again by a ConfigMap",
			func(pod *corev1.Pod) {
				of(imageTwice)(pod)
				pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}}
			}, nvidias, false, false},
		{"firewall-image-arguments", "runs an image that has it twice, by the image's own entry point and arguments",
			func(pod *corev1.Pod) {
				of(imageTwiceArguments)(pod)
				pod.Spec.Containers[0].Command = nil
			}, nvidias, false, false},
		{"firewall-image-arguments-pod", "gives such an image arguments of its own, which name the variable",
			func(pod *corev1.Pod) {
				both(imageTwiceArguments, "all")(pod)
				pod.Spec.Containers[0].Command = nil
				pod.Spec.Containers[0].Args = []string{"$(" + visibleDevices + ")", visibleDevices + "=all"}
			}, nvidias, false, false},
		{"firewall-image-pod-gpu", "runs an image that has it, and sets it, in a container with one GPU",
			func(pod *corev1.Pod) {
				limits("main", 1)(pod)
				both(imageVariable, "all")(pod)
			}, nvidias, false, false},
		{"firewall-image-init", "runs an image that has it twice as an init container that goes on",
			func(pod *corev1.Pod) {
				pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: imageTwice,
					Command:       clustertest.Idle,
					RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			}, nvidias, false, false},
		{"firewall-blank-prefix", "sets it, and 997 variables whose names begin with a blank, by a prefix of envFrom",
			func(pod *corev1.Pod) {
				env("all")(pod)
				for i := range 2 {
					pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{
						Prefix: strings.Repeat(" ", i), ConfigMapRef: &corev1.ConfigMapEnvSource{
							LocalObjectReference: corev1.LocalObjectReference{Name: manyMap}}})
				}
			}, nvidias, false, false},
		{"firewall-declared", "sets the variable of a vendor that the node's configuration declares",
			sets(unlistedVariable, "all"), lastOf(unlistedVariable, "", "void"), true, false},
		{"firewall-memory", "limits the memory of its GPU past the scheduler, by the variable of NVIDIA's toolkit",
			func(pod *corev1.Pod) {
				limits("main", 1)(pod)
				sets("NVIDIA_GPU_MEMORY_LIMIT", "1")(pod)
			}, lastOf("NVIDIA_GPU_MEMORY_LIMIT"), true, true},
		{"firewall-amd-prefix", "sets a variable whose name begins as AMD's runtime obeys it",
			sets("DOCKER_RESOURCE_GPU", "all"), amds, true, false},
		{"firewall-amd-image", "runs an image that has AMD's variable with nothing, and then one that begins so",
			of(imagePrefixed), amds, true, false},
		{"firewall-habana-image", "runs an image that has each vendor's variable, Habana's twice", of(imageVendors),
			habanas, true, false},
		{"firewall-habana-prefix", "sets a variable whose name begins with that of Habana's, which counts as the first",
			sets("HABANA_VISIBLE_DEVICES_", "all"), habanas, true, false},
		{"firewall-habana-image-prefix", "runs an image that has such a variable", of(imageFirst), habanas,
			true, false},
		{"firewall-ascend", "sets Ascend's variable", sets("ASCEND_VISIBLE_DEVICES", "0"), ascends, false, false},
		{"firewall-ascend-image", "runs an image whose value older runtimes of Ascend's prefer to later ones",
			of(imagePreferred), ascends, true, false},
		{"firewall-sockets", "has Ascend's runtime mount the sockets of the container runtimes",
			sets(socketsVariable, ""), lastOf(socketsVariable), true, true},
		{"firewall-sockets-image", "does so by its image", of(imageSockets), lastOf(socketsVariable), true, true},
	} {
		attempt := &Attempt{
			ID: way.id, Who: Tenant, What: way.what, Defence: Firewall, Want: everywhere(NoEffect, ""),
			Try: runsWith(way.shape, way.runtime), Off: Off{How: "the device firewall is off"},
		}
		if way.proxy {
			attempt.Want = everywhere(RefusedByNode, refused)
			if !way.always {
				attempt.NRI = everywhere(NoEffect, "")
			}
		}
		attempts = append(attempts, attempt)
	}
	attempts[1].Sample = true
	return attempts
}

// runsWith returns a try that runs a pod, and finds out what a runtime takes from its container.
// The attempt succeeds by running alone where that is nil.
func runsWith(shape func(*corev1.Pod), runtime obeys) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		many := map[string]string{visibleDevices: "all"}
		for i := range manyKeys - 1 {
			many[fmt.Sprintf("%s_%d", visibleDevices, i)] = "all"
		}
		for name, data := range map[string]map[string]string{"env": {visibleDevices: "all"}, manyMap: many} {
			if _, err := tenant.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data,
			}, metav1.CreateOptions{}); err != nil {
				return Got{}, err
			}
		}
		pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", 0))
		shape(pod)
		got, err := s.runs(ctx, tenant, pod)
		if err != nil || got.Outcome != Succeeds || runtime == nil {
			return got, err
		}
		container := "main"
		if len(pod.Spec.InitContainers) > 0 {
			container = pod.Spec.InitContainers[0].Name
		}
		return s.takes(ctx, pod.Name, container, runtime)
	}
}

// takes returns what a runtime takes from the environment of a running container. It succeeds if
// that asks for devices.
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
