// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// noQuota makes a pod's limits irrelevant: what the test is about is not in them.
const noQuota = "--device-quota=warn"

// A request that no plugin serves is never dropped because another request of the container is
// served.
func TestARequestThatNoPluginServesKeepsThePodWaiting(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	c.host("n2", []string{"g0", "g1"}, []string{"n0", "n1"})
	startSchedulerWith(t, []string{noQuota})
	for name, test := range map[string]struct {
		requests string
		want     string
	}{
		"path":         {`"fpga/a/region":1`, `serves fpga/a/region of container "main"`},
		"path-written": {`"fpga/a/region":1,"gpu/a/cards":1`, `serves fpga/a/region of container "main"`},
		"count":        {`"vendor.example/fpga":1`, `serves vendor.example/fpga of container "main"`},
		"misspelled":   {`"nvidia.com/gpus":1`, `serves nvidia.com/gpus of container "main"`},
		"numa":         {`"numa/A/nic/0/device":1`, `serves numa/A/nic/0/device of container "main"`},
		"slash": {`"numa/A/nvidia.com/gpu":2`, `numa/A/nvidia.com/gpu is not written as a device of a kubelet device ` +
			`plugin: write numa/A/nvidia.com:gpu`},
		"device": {`"numa/A/nvidia.com:gpu/0/devices":1`, `write numa/A/nvidia.com:gpu/0/device`},
		"even":   {`"gpugrp0/A/gpu/a":1`, `gpugrp0/A/gpu/a is no path of a device`},
	} {
		t.Run(name, func(*testing.T) {
			pod := newPod(name, 1)
			kube.SetRequests(pod, test.requests)
			c.refusal(c.create(pod), test.want)
		})
	}
	whole := newPod("whole", 1)
	whole.Annotations = map[string]string{deviceinfo.Annotation: `{"requests":{"gpu/a/cards":2}}`}
	c.refusal(c.create(whole), `annotation KubeDevice/DeviceInfo: requests["gpu/a/cards"]: a pod as a whole gets no `+
		`devices: write the request under one of its containers`)
}

// What has no effect, or probably another one than its author wants, is an event on the pod.
func TestMistakesInTheAnnotationAreEvents(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 8)
	startSchedulerWith(t, []string{noQuota})
	for name, test := range map[string]struct{ annotation, want string }{
		"list": {`{"runningcontainers":{"main":{"requests":{"gpu/a/cards":1}}}}`,
			`runningcontainers: the field is not read; did you mean "runningcontainer"?`},
		"field": {`{"policy":"spread"}`, `policy: the field is not read`},
		"option": {`{"runningcontainer":{"main":{"requests":{"gpu/gpu-generate-topologie":0}}}}`,
			`requests["gpu/gpu-generate-topologie"]: no device scheduler reads this request, and it has no effect; ` +
				`did you mean "gpu/gpu-generate-topology"?`},
		"of-pod": {`{"requests":{"gpu/gpu-generate-topologie":0}}`, `topologie"]: no device`},
		"memory": {`{"runningcontainer":{"main":{"requests":{"gpu/a/memory":20480}}}}`,
			`requests["gpu/a/memory"]: it is for 20480 bytes, less than 1 MiB: write the unit, such as "20Gi"`},
	} {
		t.Run(name, func(*testing.T) {
			pod := newPod(name, 1)
			pod.Annotations = map[string]string{deviceinfo.Annotation: test.annotation}
			c.awaitEvent(c.schedule(pod), "RequestMistake", test.want)
		})
	}
}

// Quantities are read as Kubernetes writes them, and published as plain numbers.
func TestAShareIsWrittenAsAQuantity(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 1) // of 80 GiB
	startSchedulerWith(t, []string{noQuota})
	for name, quantity := range map[string]string{"gi": `"20Gi"`, "mi": `"20480Mi"`, "bytes": `21474836480`} {
		pod := newPod(name, 0)
		kube.SetRequests(pod, `"gpu/a/memory":`+quantity)
		info, err := deviceinfo.PodAllocation(c.schedule(pod))
		if err != nil {
			t.Fatal(err)
		}
		for request, got := range info.RunningContainers["main"].DevRequests {
			if got != 20<<30 {
				t.Errorf("%s: %s is %d, want 20 GiB", quantity, request, got)
			}
		}
	}
	large := newPod("large", 0)
	kube.SetRequests(large, `"gpu/a/memory":"21Gi"`)
	c.await(c.create(large), "to be found unschedulable", kube.Unschedulable)
	wrong := newPod("wrong", 0)
	kube.SetRequests(wrong, `"gpu/a/memory":"20GB"`)
	c.refusal(c.create(wrong), `"20GB" is no quantity; write a whole number, or a quantity such as "20Gi"`)
}

// The pod two-pairs of the documents: two GPUs of one close group, and two of a different one.
func TestTwoPairsOfTheDocumentsAreOfDifferentGroups(t *testing.T) {
	manifest, err := os.ReadFile("../../../deploy/examples/two-pairs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(manifest, pod); err != nil {
		t.Fatal(err)
	}
	pod.Namespace = metav1.NamespaceDefault
	c := newCluster(t)
	var fours []gpu.GPU
	for i := range 8 { // groups of four: two pairs have space in one
		fours = append(fours, gpu.GPU{ID: fmt.Sprint("gpu-", i), Memory: 80 << 30, Groups: []int{i / 4, 0}})
	}
	c.nodeOf("n1", fours...)
	startScheduler(t)
	info, err := deviceinfo.PodAllocation(c.schedule(pod))
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]map[string]bool{} // of a GPU's name, by placeholder
	for request, from := range info.RunningContainers["main"].AllocateFrom {
		placeholder, _, _ := strings.Cut(string(request[strings.Index(string(request), "!"):]), "/")
		group, _, _ := strings.Cut(string(from), "/gpu/")
		if groups[placeholder] == nil {
			groups[placeholder] = map[string]bool{}
		}
		groups[placeholder][group] = true
	}
	if len(groups) != 2 || len(groups["!A"]) != 1 || len(groups["!B"]) != 1 || maps.Equal(groups["!A"], groups["!B"]) {
		t.Errorf("the groups of the placeholders are %v", groups)
	}
}
