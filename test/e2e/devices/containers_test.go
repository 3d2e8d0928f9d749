// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/observe"
)

func TestAPodWithNothingButALimitGetsItsDevicesAndNoOthers(t *testing.T) {
	ctx := begin(t)
	pod := clustertest.RunPod(ctx, t, shared.Client, gpuPod(clustertest.Namespace(t, shared.Client), "two", 2))

	seen := inspect(ctx, t, pod, "main")

	if !seen.Annotated || len(seen.Chosen) != 2 {
		t.Errorf("the annotation gives the pod %q, want 2 devices", seen.Chosen)
	}
	if len(seen.Refused) != 6 {
		t.Errorf("the container is refused %q, want the node's 6 others", seen.Refused)
	}
}

func TestAPodThatRequestsNoDeviceGetsNoneAndIsUnchanged(t *testing.T) {
	ctx := begin(t)
	pod := clustertest.RunPod(ctx, t, shared.Client, gpuPod(clustertest.Namespace(t, shared.Client), "plain", 0))

	if seen := inspect(ctx, t, pod, "main"); seen.Annotated || len(seen.Visible) > 0 {
		t.Errorf("the pod requested nothing, and has the devices %q, annotated: %v", seen.Visible, seen.Annotated)
	}
}

func TestEachContainerOfAPodHasDevicesOfItsOwn(t *testing.T) {
	ctx := begin(t)
	pod := gpuPod(clustertest.Namespace(t, shared.Client), "three-containers", 1)
	pod.Spec.Containers = append(pod.Spec.Containers,
		corev1.Container{
			Name: "second", Image: image.Busybox, Command: clustertest.Idle, Resources: clustertest.Limits(gpus(2)),
		},
		corev1.Container{Name: "none", Image: image.Busybox, Command: clustertest.Idle},
	)
	pod = clustertest.RunPod(ctx, t, shared.Client, pod)

	all := slices.Concat(
		expectDevices(ctx, t, pod, "main", 1),
		expectDevices(ctx, t, pod, "second", 2),
		expectDevices(ctx, t, pod, "none", 0),
	)

	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("containers share a device: together they have %q", all)
	}
}

func TestAnInitContainerHasItsDevicesBeforeTheOthersHaveTheirs(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0].Name
	pod := clustertest.On(node, gpuPod(clustertest.Namespace(t, shared.Client), "with-init", 1))
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "init", Image: image.Busybox, Command: observe.Probe(observer.Devices(node)),
		Resources: clustertest.Limits(gpus(2)),
	}}
	pod = clustertest.RunPod(ctx, t, shared.Client, pod)

	printed, err := shared.Client.Logs(ctx, pod, "init")
	if err != nil {
		t.Fatal(err)
	}
	init, err := observer.Choice(pod, "init")
	if err != nil {
		t.Fatal(err)
	}
	if err := init.Read(printed); err != nil {
		t.Error(err)
	}
	if err := init.Agree(); err != nil {
		t.Error(err)
	}
	if len(init.Visible) != 2 {
		t.Errorf("%s had the devices %q, want 2", init, init.Visible)
	}
	expectDevices(ctx, t, pod, "main", 1)
}

func TestASidecarAndItsPodHaveDifferentDevicesAtTheSameTime(t *testing.T) {
	ctx := begin(t)
	pod := gpuPod(clustertest.Namespace(t, shared.Client), "with-sidecar", 1)
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "sidecar", Image: image.Busybox, Command: clustertest.Idle, Resources: clustertest.Limits(gpus(1)),
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
	}}
	pod = clustertest.RunPod(ctx, t, shared.Client, pod)

	sidecar, main := expectDevices(ctx, t, pod, "sidecar", 1), expectDevices(ctx, t, pod, "main", 1)

	if slices.Equal(sidecar, main) {
		t.Errorf("sidecar and main container share the device %q", main)
	}
}

func TestAContainerThatIsRestartedGetsTheSameDevices(t *testing.T) {
	ctx := begin(t)
	pod := clustertest.RunPod(ctx, t, shared.Client, gpuPod(clustertest.Namespace(t, shared.Client), "restarted", 2))
	before := inspect(ctx, t, pod, "main")

	pod = clustertest.RestartContainer(ctx, t, shared.Client, pod)

	if diff := cmp.Diff(before.Visible, inspect(ctx, t, pod, "main").Visible); diff != "" {
		t.Errorf("devices (-before +after the restart):\n%s", diff)
	}
}
