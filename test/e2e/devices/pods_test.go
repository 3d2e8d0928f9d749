// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

// gpus are limits of that many GPUs, none for 0.
func gpus(count int64) map[corev1.ResourceName]int64 {
	if count == 0 {
		return nil
	}
	return map[corev1.ResourceName]int64{observe.Resource: count}
}

// gpuPod returns a pod whose only container, main, requests a number of GPUs by nothing but a
// limit.
func gpuPod(namespace, name string, count int64) *corev1.Pod {
	pod := clustertest.IdlePod(namespace, name, gpus(count))
	// A pod without grace is gone from the API server before its container is.
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	return pod
}

// inspect reads a running container and fails the test unless it has exactly the devices that the
// scheduler chose for it.
func inspect(ctx context.Context, t *testing.T, pod *corev1.Pod, container string) *observe.Observation {
	t.Helper()
	seen := inspectRaw(ctx, t, pod, container)
	if err := seen.Agree(); err != nil {
		t.Error(err)
	}
	return seen
}

// inspectRaw reads a running container.
func inspectRaw(ctx context.Context, t *testing.T, pod *corev1.Pod, container string) *observe.Observation {
	t.Helper()
	var seen *observe.Observation
	clustertest.Await(ctx, t, "the kubelet to reach the container runtime", func() bool {
		var err error
		seen, err = observer.Observe(ctx, pod, container)
		// The kubelet has lost kubecri, which has been killed, and takes a moment to find it again.
		if err != nil && !strings.Contains(err.Error(), "code = Unavailable") {
			t.Fatal(err)
		}
		return err == nil
	})
	return seen
}

// expectDevices reads a running container and fails the test unless it has that many devices,
// which it returns.
func expectDevices(ctx context.Context, t *testing.T, pod *corev1.Pod, container string, count int) []string {
	t.Helper()
	seen := inspect(ctx, t, pod, container)
	if len(seen.Visible) != count {
		t.Errorf("%s has the devices %q, want %d", seen, seen.Visible, count)
	}
	return seen.Visible
}
