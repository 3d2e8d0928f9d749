// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
)

// visibleDevices is the variable by which NVIDIA's container runtime adds devices.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// firewalls are attempts to have the container runtime add devices which the container was not
// allocated. The runtime here has no vendor's hook, so an attempt succeeds when what the hook would
// obey reaches the container.
func firewalls() []*Attempt {
	var attempts []*Attempt
	for _, way := range []struct {
		id, what  string
		container string // the one that the attempt is judged by
		shape     func(pod *corev1.Pod)
	}{
		{"firewall-env", "sets " + visibleDevices + " to all", "main", env("all")},
		{"firewall-env-index", "sets it to the numbers of two GPUs", "main", env("0,1")},
		{"firewall-env-twice", "sets it twice, first to nothing", "main", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: visibleDevices, Value: "void"},
				{Name: visibleDevices, Value: "all"}}
		}},
		{"firewall-env-expanded", "puts its value together from another variable", "main", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "al"}, {Name: visibleDevices,
				Value: "$(A)l"}}
		}},
		{"firewall-env-configmap", "takes it from a ConfigMap", "main", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}}
		}},
		{"firewall-env-label", "takes it from a label of the pod", "main", func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"devices": "all"}
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: visibleDevices, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['devices']"}}}}
		}},
		{"firewall-env-init", "sets it in an init container", "first", func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: image.Busybox,
				Command: clustertest.Idle,
				Env:     []corev1.EnvVar{{Name: visibleDevices, Value: "all"}}}}
		}},
		{"firewall-env-sidecar", "sets it in a sidecar", "first", func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: image.Busybox,
				Command:       clustertest.Idle,
				RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
				Env:           []corev1.EnvVar{{Name: visibleDevices, Value: "all"}}}}
		}},
		{"firewall-env-beside", "sets it in a second container, next to one with a GPU", "second",
			func(pod *corev1.Pod) {
				limits("main", 1)(pod)
				second(pod)
				pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: visibleDevices, Value: "all"}}
			}},
		{"firewall-env-more", "sets it to all in a container that was allocated one GPU", "main",
			func(pod *corev1.Pod) {
				limits("main", 1)(pod)
				env("all")(pod)
			}},
		{"firewall-image", "runs an image that has the variable", "main", of(imageVariable)},
		{"firewall-image-more", "runs such an image with one GPU", "main", func(pod *corev1.Pod) {
			limits("main", 1)(pod)
			of(imageVariable)(pod)
		}},
	} {
		attempts = append(attempts, &Attempt{
			ID: way.id, Who: Tenant, What: way.what, Defence: Firewall, Want: everywhere(NoEffect, ""),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				_, err = tenant.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: "env"}, Data: map[string]string{visibleDevices: "all"},
				}, metav1.CreateOptions{})
				if err != nil {
					return Got{}, err
				}
				pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", 0))
				way.shape(pod)
				got, err := s.runs(ctx, tenant, pod)
				if err != nil || got.Outcome != Succeeds {
					return got, err
				}
				return s.requests(ctx, pod.Name, way.container)
			},
			Off: Off{How: "the device firewall is off"},
		})
	}
	attempts[0].Sample = true
	const refusal = "asks for devices that the container was not allocated"
	refused := func(id, what string, shape func(pod *corev1.Pod)) *Attempt {
		return &Attempt{
			ID: id, Who: Tenant, What: what, Defence: Firewall, Want: everywhere(RefusedByNode, refusal),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", 0))
				shape(pod)
				return s.runs(ctx, tenant, pod)
			},
			Off: Off{How: "the device firewall is off"},
		}
	}
	hostPath := func(at string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "null", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null"}}}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "null", MountPath: at}}
		}
	}
	annotation := func(key, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} }
	}
	return append(attempts,
		refused("firewall-cdi", "names a CDI device in an annotation of the pod",
			annotation("cdi.k8s.io/mine", "nvidia.com/gpu=0")),
		refused("firewall-cdi-all", "names all CDI devices of the vendor there",
			annotation("cdi.k8s.io/mine", "nvidia.com/gpu=all")),
		refused("firewall-cdi-list", "names one behind a device of somebody else",
			annotation("cdi.k8s.io/mine", "example.com/x=0,nvidia.com/gpu=0")),
		refused("firewall-mount", "mounts /dev/null where NVIDIA's runtime looks for the list of devices",
			hostPath("/var/run/nvidia-container-devices/all")),
		refused("firewall-mount-index", "mounts it there for one GPU",
			hostPath("/var/run/nvidia-container-devices/0")),
		&Attempt{
			ID: "firewall-env-debug", Who: Controller, What: "sets " + visibleDevices + " in a debug container",
			Defence: Firewall, Want: everywhere(NoEffect, ""), Try: debugContainer,
			Off: Off{How: "the device firewall is off"},
		},
	)
}

// of runs an image in the container main.
func of(image string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = image }
}

// env sets the variable in the container main.
func env(value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: visibleDevices,
			Value: value})
	}
}

// debugContainer adds a debug container to a pod of the attacker's.
func debugContainer(ctx context.Context, s *Stage) (Got, error) {
	controller, err := s.controller(ctx)
	if err != nil {
		return Got{}, err
	}
	pod, err := controller.RunPod(ctx, clustertest.On(s.node(scheduled).Name, s.pod("greedy", 0)))
	if err != nil {
		return Got{}, err
	}
	debug := corev1.EphemeralContainerCommon{
		Name: "debug", Image: image.Busybox, Command: clustertest.Idle,
		Env: []corev1.EnvVar{{Name: visibleDevices, Value: "all"}},
	}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: debug}}
	if _, err := controller.CoreV1().Pods(s.namespace).UpdateEphemeralContainers(ctx, pod.Name, pod,
		metav1.UpdateOptions{}); err != nil {
		return Got{}, err
	}
	if _, err := s.admin.AwaitPod(ctx, pod, "to run its debug container", func(now *corev1.Pod) bool {
		return len(now.Status.EphemeralContainerStatuses) > 0 &&
			now.Status.EphemeralContainerStatuses[0].State.Running != nil
	}); err != nil {
		return Got{}, err
	}
	return s.requests(ctx, pod.Name, "debug")
}
