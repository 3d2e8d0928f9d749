// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// requesting returns a pod that requests devices from the container runtime.
func requesting(change ...func(*corev1.Pod)) *corev1.Pod {
	return annotated("", append([]func(*corev1.Pod){func(pod *corev1.Pod) {
		pod.Spec.ServiceAccountName = "default"
	}}, change...)...)
}

func withEnv(name, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: value})
	}
}

func withAnnotation(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} }
}

func inKubeSystem(pod *corev1.Pod) { pod.Namespace = "kube-system" }

func privileged(pod *corev1.Pod) {
	yes := true
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
}

func TestPodsMayNotRequestDevicesFromTheRuntime(t *testing.T) {
	visible := withEnv("NVIDIA_VISIBLE_DEVICES", "all")
	annotation := withAnnotation("cdi.k8s.io/x", "nvidia.com/gpu=all")
	for name, test := range map[string]struct {
		object, old *corev1.Pod
		resource    string
		refused     string // a part of the message
	}{
		"a pod without requests": {object: requesting()},
		"a variable":             {object: requesting(visible), refused: "container main asks"},
		"a variable with spaces": {
			object: requesting(withEnv(" ASCEND_VISIBLE_DEVICES", "0")), refused: "container main asks",
		},
		"a variable that only begins so": {
			object: requesting(withEnv("DOCKER_RESOURCE_X", "0")), refused: "container main asks",
		},
		"a variable with a value from elsewhere": {
			object: requesting(func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{
					Name: "AMD_VISIBLE_DEVICES",
					ValueFrom: &corev1.EnvVarSource{
						FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['gpus']"},
					},
				}}
			}),
			refused: "container main asks",
		},
		"a variable that requests none": {object: requesting(withEnv("NVIDIA_VISIBLE_DEVICES", "none"))},
		"a variable of another name":    {object: requesting(withEnv("MY_NVIDIA_VISIBLE_DEVICES", "all"))},
		"an init container": {
			object: requesting(func(pod *corev1.Pod) {
				pod.Spec.InitContainers = []corev1.Container{
					{Name: "first", Env: []corev1.EnvVar{{Name: "HABANA_VISIBLE_DEVICES", Value: "all"}}},
				}
			}),
			refused: "container first asks",
		},
		"a mount": {
			object: requesting(func(pod *corev1.Pod) {
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
					{Name: "n", MountPath: "/var/run/nvidia-container-devices/all"},
				}
			}),
			refused: "container main asks",
		},
		"an annotation": {object: requesting(annotation), refused: "annotation cdi.k8s.io/x asks"},
		"one with a vendor's prefix": {
			object: requesting(withAnnotation("nvidia.cdi.k8s.io/x", "a")), refused: "asks",
		},
		"one for CRI-O": {
			object: requesting(withAnnotation("io.kubernetes.cri-o.Devices", "/dev/x")), refused: "asks",
		},
		"another annotation": {object: requesting(withAnnotation("example.com/cdi.k8s.io", "a"))},
		"an annotation that comes later": {
			object: requesting(annotation), old: requesting(), refused: "annotation cdi.k8s.io/x",
		},
		"one that was there before": {
			object: requesting(annotation, visible), old: requesting(annotation, visible),
		},
		"a debug container": {
			object: requesting(func(pod *corev1.Pod) {
				pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
					EphemeralContainerCommon: corev1.EphemeralContainerCommon{
						Name: "debug", Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}},
					},
				}}
			}),
			old: requesting(), resource: "pods/ephemeralcontainers", refused: "container debug asks",
		},
		"a privileged container, which has all devices": {object: requesting(visible, privileged)},
		"a pod of kube-system":                          {object: requesting(visible, annotation, inKubeSystem)},
	} {
		r := request{user: "ada", resource: "pods", object: test.object}
		if test.resource != "" {
			r.resource = test.resource
		}
		if test.old != nil {
			r.old = test.old
		}
		got := readPolicy(t, "kubedevice-device-requests").refusal(t, r)
		if (got == "") != (test.refused == "") || !strings.Contains(got, test.refused) ||
			strings.HasPrefix(got, "error:") {
			t.Errorf("%s: %q, want %q", name, got, test.refused)
		}
	}
}
