// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// holders returns what an agent reports about which container holds which GPUs: sorted IDs, by
// container and pod of the namespace, without those that hold none.
func holders(ctx context.Context, t *testing.T, agent podresourcesapi.PodResourcesListerClient,
	namespace string) map[string][]string {
	t.Helper()
	answer, err := agent.List(ctx, &podresourcesapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	held := map[string][]string{}
	for _, pod := range answer.GetPodResources() {
		for _, container := range pod.GetContainers() {
			if ids := gpusOf(t, container.GetDevices()); pod.GetNamespace() == namespace && len(ids) > 0 {
				held[pod.GetName()+"/"+container.GetName()] = ids
			}
		}
	}
	return held
}

// gpusOf returns the sorted IDs of the devices, which must be GPUs.
func gpusOf(t *testing.T, devices []*podresourcesapi.ContainerDevices) []string {
	t.Helper()
	var ids []string
	for _, device := range devices {
		if device.GetResourceName() != string(observe.Resource) {
			t.Errorf("there is a device of another resource: %v", device)
		}
		ids = append(ids, device.GetDeviceIds()...)
	}
	slices.Sort(ids)
	return ids
}

func TestAnExporterSeesEachPodWithItsDevices(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	node := shared.Nodes[0]
	two := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "two", 2)))
	several := clustertest.On(node.Name, gpuPod(namespace, "several", 1))
	several.Spec.InitContainers = []corev1.Container{
		{
			Name: "sidecar", Image: image.Busybox, Command: clustertest.Idle, Resources: clustertest.Limits(gpus(1)),
			RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		},
		{Name: "init", Image: image.Busybox, Command: []string{"true"}, Resources: clustertest.Limits(gpus(2))},
	}
	several.Spec.Containers = append(several.Spec.Containers, corev1.Container{Name: "plain", Image: image.Busybox,
		Command: clustertest.Idle})
	several = clustertest.RunPod(ctx, t, shared.Client, several)
	clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "none", 0)))
	over := clustertest.On(node.Name, gpuPod(namespace, "over", 1))
	over.Spec.Containers[0].Command, over.Spec.RestartPolicy = []string{"true"}, corev1.RestartPolicyNever
	clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, over), "to be over",
		kube.Succeeded)
	elsewhere := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(shared.Nodes[1].Name, gpuPod(namespace, "elsewhere", 1)))

	agent := clustertest.NewAgent(t, node, clustertest.KubecriPodResources)
	want := map[string][]string{
		"two/main":        inspect(ctx, t, two, "main").Visible,
		"several/main":    inspect(ctx, t, several, "main").Visible,
		"several/sidecar": inspect(ctx, t, several, "sidecar").Visible,
	}
	if diff := cmp.Diff(want, holders(ctx, t, agent, namespace)); diff != "" {
		t.Errorf("who holds what (-seen in the containers +reported):\n%s", diff)
	}
	there := map[string][]string{"elsewhere/main": inspect(ctx, t, elsewhere, "main").Visible}
	if diff := cmp.Diff(there, holders(ctx, t,
		clustertest.NewAgent(t, shared.Nodes[1], clustertest.KubecriPodResources), namespace)); diff != "" {
		t.Errorf("on the other node (-seen in the containers +reported):\n%s", diff)
	}

	restart(ctx, t, node.Kubecri)
	// The old connection may not have noticed yet that it is cut.
	agent = clustertest.NewAgent(t, node, clustertest.KubecriPodResources)
	if diff := cmp.Diff(want, holders(ctx, t, agent, namespace)); diff != "" {
		t.Errorf("when kubecri was killed and runs again (-seen in the containers +reported):\n%s", diff)
	}
	if err := shared.Client.DeletePod(ctx, two); err != nil {
		t.Fatal(err)
	}
	delete(want, "two/main")
	clustertest.Await(ctx, t, "the deleted pod to be listed no more", func() bool {
		return cmp.Equal(want, holders(ctx, t, agent, namespace))
	})
}

func TestAnExporterChangesNothingButItsHostPath(t *testing.T) {
	program := filepath.Join(string(files), "exporter")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(program, "exporter"),
		"./testdata/exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the exporter: %v\n%s", err, said)
	}
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	node := shared.Nodes[0].Name
	train := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "train", 2)))

	exporter := clustertest.On(node, kube.NewPod("exporter", image.Busybox, "/exporter/exporter"))
	exporter.Namespace, exporter.Spec.RestartPolicy = namespace, corev1.RestartPolicyNever
	for at, directory := range map[string]string{"/exporter": program,
		filepath.Dir(clustertest.KubeletPodResources): filepath.Dir(clustertest.KubecriPodResources)} {
		name := filepath.Base(directory)
		exporter.Spec.Volumes = append(exporter.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory,
				Type: ptr.To(corev1.HostPathDirectory)}},
		})
		exporter.Spec.Containers[0].VolumeMounts = append(exporter.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true})
	}
	exporter = clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, exporter),
		"to succeed", kube.Succeeded)

	printed, err := shared.Client.Logs(ctx, exporter, exporter.Spec.Containers[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	var reported []string
	for line := range strings.Lines(printed) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[0] == namespace &&
			fields[3] == string(observe.Resource) {
			reported = append(reported, strings.Join([]string{fields[1], fields[2], fields[4]}, " "))
		}
	}
	var want []string
	for _, id := range inspect(ctx, t, train, "main").Visible {
		want = append(want, "train main "+id)
	}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("who holds what (-seen in the container +exported):\n%s\nIt printed:\n%s", diff, printed)
	}
}

func TestAnExporterSeesAllElseAsTheKubeletReportsIt(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0]
	pod := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(node.Name, gpuPod(clustertest.Namespace(t, shared.Client), "two", 2)))
	kubelet, kubecri := clustertest.NewAgent(t, node, clustertest.KubeletPodResources),
		clustertest.NewAgent(t, node, clustertest.KubecriPodResources)
	request := &podresourcesapi.GetPodResourcesRequest{PodNamespace: pod.Namespace, PodName: pod.Name}

	reported, err := kubelet.Get(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	got, err := kubecri.Get(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	main := got.GetPodResources().GetContainers()[0]
	if diff := cmp.Diff(inspect(ctx, t, pod, "main").Visible, gpusOf(t, main.GetDevices())); diff != "" {
		t.Errorf("the pod's devices (-seen in the container +reported):\n%s", diff)
	}
	main.Devices = nil
	if diff := cmp.Diff(reported, got, protocmp.Transform()); diff != "" {
		t.Errorf("all else of the pod (-kubelet +kubecri):\n%s", diff)
	}

	request.PodName = "absent"
	_, wantErr := kubelet.Get(ctx, request)
	if _, err := kubecri.Get(ctx, request); wantErr == nil || err == nil || err.Error() != wantErr.Error() {
		t.Errorf("of a pod that is not there the kubelet says %v, and kubecri %v", wantErr, err)
	}

	of, err := kubelet.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := kubecri.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, device := range observer.Devices(node.Name) {
		ids = append(ids, device.ID)
	}
	slices.Sort(ids)
	if diff := cmp.Diff(ids, gpusOf(t, all.GetDevices())); diff != "" {
		t.Errorf("the node's devices (-there +reported):\n%s", diff)
	}
	all.Devices = of.GetDevices()
	if diff := cmp.Diff(of, all, protocmp.Transform()); diff != "" {
		t.Errorf("all else of the node (-kubelet +kubecri):\n%s", diff)
	}
}
