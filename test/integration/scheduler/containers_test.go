// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// newPodOf returns a pod whose containers request GPUs. A word is a container: its name, and as
// many stars as it wants GPUs. Names that begin with init are of init containers, with side of
// sidecars.
func newPodOf(name, containers string) *corev1.Pod {
	pod := newPod(name, 0)
	pod.Spec.Containers = nil
	for word := range strings.FieldsSeq(containers) {
		container := newPod(name, int64(strings.Count(word, "*"))).Spec.Containers[0]
		container.Name = strings.TrimRight(word, "*")
		switch {
		case strings.HasPrefix(word, "side"):
			container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			fallthrough
		case strings.HasPrefix(word, "init"):
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
}

// held returns the GPUs of a bound pod's containers of these names, each as often as it is held.
func held(t *testing.T, pod *corev1.Pod, containers ...string) []string {
	t.Helper()
	info, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, name := range containers {
		for _, all := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
			if container, ok := all[name]; ok {
				ids = append(ids, gpu.Allocated(&container)...)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// A node has four GPUs, and a pod may have as many at a time as Kubernetes says for any resource:
// init containers run one after another and before the others, sidecars along with all that come
// after them.
func TestContainersShareWhatTheyDoNotNeedAtTheSameTime(t *testing.T) {
	startScheduler(t)
	for name, test := range map[string]struct {
		containers string
		together   []string // run at the same time, so that they share no GPU
		left       int64    // GPUs that another pod can have
	}{
		"containers":                         {"a** b*", []string{"a", "b"}, 1},
		"an init container of more":          {"init*** main*", []string{"init"}, 1},
		"init containers, one after another": {"init1*** init2** main*", []string{"main"}, 1},
		"a sidecar with a container":         {"side* main**", []string{"side", "main"}, 1},
		"a sidecar with an init container":   {"side* init* main*", []string{"side", "init"}, 2},
		"a sidecar that starts after it":     {"init** side* main*", []string{"side", "main"}, 2},
		"two sidecars":                       {"side1* init* side2* main*", []string{"side1", "side2", "main"}, 1},
		"a sidecar next to a pair":           {"init1* side* init2** main*", []string{"side", "init2"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("n1", 4)
			pod := c.schedule(newPodOf("pod", test.containers))
			ids := held(t, pod, test.together...)
			if distinct := slices.Compact(slices.Clone(ids)); len(distinct) != len(ids) {
				t.Errorf("%s have %s", test.together, ids)
			}
			for i := range test.left {
				c.schedule(annotatedPod([]string{"x", "y"}[i]))
			}
			c.await(c.create(annotatedPod("one-more")), "to be found unschedulable", kube.Unschedulable)
		})
	}
}

// Requests of the pod as a whole are of CPU and memory; Kubernetes has none of devices.
func TestAPodWithRequestsOfItsOwnGetsTheDevicesOfItsContainers(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	startScheduler(t)
	pod := newPodOf("whole", "a* b")
	pod.Spec.Resources = &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	if got := held(t, c.schedule(pod), "a"); len(got) != 1 {
		t.Errorf("container a has %s, want one GPU", got)
	}

	refused := newPodOf("refused", "a b")
	refused.Spec.Resources = &corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceName(gpu.Resource): resource.MustParse("1")}}
	if _, err := c.CreatePod(t.Context(), refused); err == nil {
		t.Error("a pod may request devices at pod level, where no container gets them")
	}
}
