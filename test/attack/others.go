// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// others are attempts of a container that requests another resource of the vendor, which a plugin
// gives by the kubelet: that exempts what the plugin gives, and nothing else.
func others() []*Attempt {
	const refusal = "asks for devices that the container was not allocated"
	nvidias := lastOf(visibleDevices, "", "void", "none")
	annotation := func(value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations = map[string]string{"cdi.k8s.io/mine": value} }
	}
	attempt := func(id, what string, want Want, shape func(*corev1.Pod), runtime obeys) *Attempt {
		return &Attempt{
			ID: id, Who: Tenant, What: what, Defence: Firewall, Want: everywhere(want.Outcome, want.Words),
			Try: withOther(shape, runtime), Off: Off{How: "the device firewall is off"},
		}
	}
	return append([]*Attempt{
		attempt("firewall-other-env", "sets "+visibleDevices+" and requests another resource of the vendor",
			Want{Outcome: NoEffect}, env("all"), nvidias),
		attempt("firewall-other-image", "runs an image that has it, and sets it, with such a request",
			Want{Outcome: NoEffect}, func(pod *corev1.Pod) {
				of(imageVariable)(pod)
				env("all")(pod)
			}, nvidias),
		attempt("firewall-other-channels", "sets NVIDIA_IMEX_CHANNELS with such a request",
			Want{Outcome: NoEffect}, func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_IMEX_CHANNELS", Value: "0,1"}}
			}, lastOf("NVIDIA_IMEX_CHANNELS", "", "void")),
		attempt("firewall-other-mig", "sets NVIDIA_MIG_CONFIG_DEVICES next to such a request",
			Want{Outcome: NoEffect}, func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_MIG_CONFIG_DEVICES", Value: "all"}}
			}, lastOf("NVIDIA_MIG_CONFIG_DEVICES", "")),
		attempt("firewall-other-cdi", "names a CDI device in an annotation with such a request",
			Want{RefusedByNode, refusal}, annotation("nvidia.com/gpu=0"), nil),
		attempt("firewall-other-mount", "mounts /dev/null at the list of devices with such a request",
			Want{RefusedByNode, refusal}, func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "null", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null"}}}}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "null",
					MountPath: "/var/run/nvidia-container-devices/all"}}
			}, nil),
	}, &Attempt{
		ID: "firewall-variables-cdi", Who: Tenant, Defence: Firewall,
		What: "names one of the CDI devices by which kubecri itself sets variables, in an annotation",
		Want: everywhere(RefusedByNode, refusal), Off: Off{How: "the device firewall is off"},
		Try: runsWith(annotation("kubedevice.io/variables=mine"), nil),
	})
}

// withOther returns a try as runsWith does, on a node with a plugin of another resource of the
// vendor's that is registered with the kubelet. The container requests that.
func withOther(shape func(*corev1.Pod), runtime obeys) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		resource, endpoint := "nvidia.com/"+s.attempt.ID, s.attempt.ID+".sock"
		plugin := fakeplugin.New(fakeplugin.Device("d"))
		if err := s.node(scheduled).Sandbox().Do(func() error {
			_, err := plugin.Serve(atKubelet + "/" + endpoint)
			return err
		}); err != nil {
			return Got{}, err
		}
		defer plugin.Stop()
		if got, err := s.registerAs(ctx, scheduled, atKubelet, endpoint, resource); err != nil || got.Outcome != "" {
			return got, err
		}
		name := corev1.ResourceName(resource)
		if err := await.Until(ctx, "the node to count "+resource, func(ctx context.Context) (bool, error) {
			now, err := s.admin.CoreV1().Nodes().Get(ctx, s.node(scheduled).Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			counted := now.Status.Allocatable[name]
			return !counted.IsZero(), nil
		}); err != nil {
			return Got{}, err
		}
		return runsWith(func(pod *corev1.Pod) {
			shape(pod)
			pod.Spec.Containers[0].Resources = clustertest.Limits(map[corev1.ResourceName]int64{name: 1})
		}, runtime)(ctx, s)
	}
}
