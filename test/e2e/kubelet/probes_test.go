// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

func runs(command string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", command}}}
}

func TestProbesAndHooksRunInsideTheContainer(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := newPod(t, node, "sh", "-c", "trap 'echo the end; exit 0' TERM; echo begun; while :; do sleep 0.1; done")
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60)
		main := &pod.Spec.Containers[0]
		main.Lifecycle = &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{Exec: runs("touch /tmp/started").Exec},
			PreStop:   &corev1.LifecycleHandler{Exec: runs("echo farewell >/proc/1/fd/1").Exec},
		}
		main.StartupProbe = &corev1.Probe{ProbeHandler: runs("[ -e /tmp/started ]"), PeriodSeconds: 1,
			FailureThreshold: 100}
		main.ReadinessProbe = &corev1.Probe{ProbeHandler: runs("[ -e /tmp/ready ]"), PeriodSeconds: 1}
		main.LivenessProbe = &corev1.Probe{ProbeHandler: runs("[ ! -e /tmp/ill ]"), PeriodSeconds: 1,
			FailureThreshold: 1, TimeoutSeconds: 30}

		pod = clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, pod),
			"to be started, and not ready", func(pod *corev1.Pod) bool {
				return ptr.Deref(container(pod).Started, false) && !container(pod).Ready
			})
		inside(ctx, t, pod, "touch", "/tmp/ready")
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready", kube.Ready)
		inside(ctx, t, pod, "touch", "/tmp/ill")
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be restarted", func(pod *corev1.Pod) bool {
			return container(pod).RestartCount == 1 && ptr.Deref(container(pod).Started, false)
		})

		logs := follow(ctx, t, pod, "logs", "--follow", pod.Name)
		logs.awaitLine(t, "begun")
		if err := shared.Client.DeletePod(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if last := strings.Fields(logs.rest(t)); strings.Join(last, " ") != "farewell the end" {
			t.Errorf("the container's last words are %q, want the hook's, then its own", last)
		}
	})
}
