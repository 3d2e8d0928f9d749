// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/kubectl/lint"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// namesTest is a pod of a user of HAMi or KAI, and what becomes of it on a node with four GPUs of
// 80 GiB, of which two each are connected.
type namesTest struct {
	// pod is its metadata and spec, in YAML.
	pod string
	// gets is what each container gets, as <container>: <GPU>/<resource>=<quantity>, or
	gets string
	// waits is a part of the text that says why the pod waits.
	waits string
	// node says that another node could serve it.
	node bool
}

// limits returns the YAML of a pod with one container that has these limits.
func limits(list string) string {
	return "spec: {containers: [{name: main, resources: {limits: {" + list + "}}}]}"
}

// annotated returns the YAML of a pod with these annotations, and a container with limits.
func annotated(annotations, list string) string {
	return "metadata: {annotations: {" + annotations + "}}\n" + limits(list)
}

// Each form of a pod that HAMi's documents show.
var hamiTests = map[string]namesTest{
	"GPUs without parts are whole": {pod: limits(`nvidia.com/gpu: 1`), gets: "main: GPU-3/cards=1"},
	"two GPUs without parts are connected": {
		pod: limits(`nvidia.com/gpu: 2`), gets: "main: GPU-2/cards=1 GPU-3/cards=1",
	},
	"memory of a GPU": {
		pod: limits(`nvidia.com/gpu: 1, nvidia.com/gpumem: 3000`), gets: "main: GPU-3/memory=3000Mi",
	},
	"memory alone is of one GPU": {pod: limits(`nvidia.com/gpumem: 3000`), gets: "main: GPU-3/memory=3000Mi"},
	"memory is of each of several GPUs": {
		pod:  limits(`nvidia.com/gpu: 2, nvidia.com/gpumem: 3000`),
		gets: "main: GPU-2/memory=3000Mi GPU-3/memory=3000Mi",
	},
	"a percentage of the memory of a GPU": {
		pod: limits(`nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50`), gets: "main: GPU-3/memory=40Gi",
	},
	"a percentage alone is of one GPU": {
		pod: limits(`nvidia.com/gpumem-percentage: 25`), gets: "main: GPU-3/memory=20Gi",
	},
	"a percentage is of each of several GPUs": {
		pod:  limits(`nvidia.com/gpu: 2, nvidia.com/gpumem-percentage: 100`),
		gets: "main: GPU-2/memory=80Gi GPU-3/memory=80Gi",
	},
	"all compute time is the whole GPU": {
		pod: limits(`nvidia.com/gpu: 1, nvidia.com/gpucores: 100`), gets: "main: GPU-3/cards=1",
	},
	"all compute time alone is one whole GPU": {pod: limits(`nvidia.com/gpucores: 100`), gets: "main: GPU-3/cards=1"},
	"all compute time and memory are the whole GPU with that memory": {
		pod:  limits(`nvidia.com/gpu: 1, nvidia.com/gpucores: 100, nvidia.com/gpumem: 1024`),
		gets: "main: GPU-3/cards=1 GPU-3/memory=1Gi",
	},
	"no compute time is no request": {
		pod:  limits(`nvidia.com/gpu: 1, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 0`),
		gets: "main: GPU-3/memory=3000Mi",
	},
	"each container of a pod gets its own": {
		pod: `spec:
  initContainers: [{name: first, resources: {limits: {nvidia.com/gpumem: 1024}}}]
  containers:
  - {name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 2048}}}
  - {name: other, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3072}}}
  - {name: none}`,
		gets: "first: GPU-3/memory=1Gi, main: GPU-3/memory=2Gi, other: GPU-3/memory=3Gi",
	},
	"memory that no GPU has": {
		pod: limits(`nvidia.com/gpu: 1, nvidia.com/gpumem: 90000`), node: true,
		waits: "have no gpu with 87.8 GiB of memory",
	},
	"more GPUs than the node has": {
		pod: limits(`nvidia.com/gpu: 5, nvidia.com/gpumem: 1000`), waits: "have fewer than 5", node: true,
	},

	"memory and compute time of a GPU": {
		pod:  limits(`nvidia.com/gpu: 1, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30`),
		gets: "main: GPU-3/cores=30 GPU-3/memory=3000Mi",
	},
	"memory and compute time of each of several GPUs": {
		pod:  limits(`nvidia.com/gpu: 2, nvidia.com/gpumem-percentage: 50, nvidia.com/gpucores: 60`),
		gets: "main: GPU-2/cores=60 GPU-2/memory=40Gi GPU-3/cores=60 GPU-3/memory=40Gi",
	},
	"a part of the compute time with all memory is the whole GPU": {
		pod: limits(`nvidia.com/gpu: 1, nvidia.com/gpucores: 30`), gets: "main: GPU-3/cards=1",
	},
	"a part of the compute time alone is one whole GPU": {
		pod: limits(`nvidia.com/gpucores: 30`), gets: "main: GPU-3/cards=1",
	},
	"containers whose compute times do not fit on one GPU have different ones": {
		pod: `spec:
  containers:
  - {name: main, resources: {limits: {nvidia.com/gpumem: 1024, nvidia.com/gpucores: 60}}}
  - {name: other, resources: {limits: {nvidia.com/gpumem: 1024, nvidia.com/gpucores: 60}}}`,
		gets: "main: GPU-3/cores=60 GPU-3/memory=1Gi, other: GPU-2/cores=60 GPU-2/memory=1Gi",
	},
	"priorities are not supported": {
		pod: limits(`nvidia.com/gpu: 1, nvidia.com/priority: 1`), waits: `nvidia.com/priority is "1"`,
	},
	"memory with a unit is a mistake": {
		pod: limits(`nvidia.com/gpumem: 3Gi`), waits: `nvidia.com/gpumem is "3Gi": it is in MiB`,
	},
	"memory and a percentage are a mistake": {
		pod:   limits(`nvidia.com/gpumem: 3000, nvidia.com/gpumem-percentage: 50`),
		waits: `nvidia.com/gpumem-percentage is "50": the container requests nvidia.com/gpumem, too`,
	},
	"more than 100 percent of the memory is a mistake": {
		pod: limits(`nvidia.com/gpumem-percentage: 101`), waits: "write 1 to 100",
	},
	"more than 100 percent of the compute time is a mistake": {
		pod: limits(`nvidia.com/gpucores: 200`), waits: "a GPU has 100 percent of its compute time",
	},
	"parts of no GPU are a mistake": {
		pod: limits(`nvidia.com/gpu: 0, nvidia.com/gpumem: 3000`), waits: `nvidia.com/gpu is "0"`,
	},
	"parts of very many GPUs are a mistake": {
		pod: limits(`nvidia.com/gpu: 129, nvidia.com/gpumem: 3000`), waits: "parts of 128 GPUs at most",
	},
	"parts of GPUs in two languages are a mistake": {
		pod: annotated(`KubeDevice/DeviceInfo: '{"runningcontainer":{"main":{"requests":{"gpu/a/memory":"1Gi"}}}}'`,
			`nvidia.com/gpumem: 3000`),
		waits: "write all of it in one way",
	},

	"a GPU of one of the models": {
		pod: annotated(`nvidia.com/use-gputype: "V100, h100"`, `nvidia.com/gpu: 1`), gets: "main: GPU-2/cards=1",
	},
	"a GPU of none of the models": {
		pod:  annotated(`nvidia.com/nouse-gputype: a100`, `nvidia.com/gpumem: 1024`),
		gets: "main: GPU-2/memory=1Gi",
	},
	"several GPUs of a model": {
		pod:  annotated(`nvidia.com/use-gputype: A100`, `nvidia.com/gpu: 2, nvidia.com/gpumem: 1024`),
		gets: "main: GPU-0/memory=1Gi GPU-1/memory=1Gi",
	},
	"more GPUs of a model than the node has": {
		pod: annotated(`nvidia.com/use-gputype: H100`, `nvidia.com/gpu: 2`), node: true,
		waits: "too few GPUs for 2 of nvidia.com/gpu",
	},
	"a model that the node does not have": {
		pod: annotated(`nvidia.com/use-gputype: T4`, `nvidia.com/gpumem: 1024`), waits: "have no gpu with 1 GiB",
		node: true,
	},
	"a GPU by its UUID": {
		pod: annotated(`nvidia.com/use-gpuuuid: "GPU-9,GPU-1"`, `nvidia.com/gpu: 1`), gets: "main: GPU-1/cards=1",
	},
	"no GPU by its UUID": {
		pod:  annotated(`nvidia.com/nouse-gpuuuid: "GPU-2, GPU-3"`, `nvidia.com/gpu: 1`),
		gets: "main: GPU-1/cards=1",
	},
	"a GPU by both": {
		pod:  annotated(`nvidia.com/use-gputype: A100, nvidia.com/nouse-gpuuuid: GPU-1`, `nvidia.com/gpu: 1`),
		gets: "main: GPU-0/cards=1",
	},
	"a GPU of a model for a request by its path": {
		pod: annotated(`nvidia.com/use-gputype: H100, `+
			`KubeDevice/DeviceInfo: '{"runningcontainer":{"main":{"requests":{"gpu/a/memory":"1Gi"}}}}'`, ""),
		gets: "main: GPU-2/memory=1Gi",
	},
	"a list without a name is a mistake": {
		pod: annotated(`nvidia.com/use-gputype: "A100,"`, `nvidia.com/gpu: 1`), waits: "write one name or more",
	},

	"a GPU alone is always on one NUMA node": {
		pod: annotated(`nvidia.com/numa-bind: "true"`, `nvidia.com/gpu: 1`), gets: "main: GPU-3/cards=1",
	},
	"several GPUs need not be on one NUMA node": {
		pod: annotated(`nvidia.com/numa-bind: "false"`, `nvidia.com/gpu: 2`), gets: "main: GPU-2/cards=1 GPU-3/cards=1",
	},
	"several GPUs are not bound to a NUMA node": {
		pod: annotated(`nvidia.com/numa-bind: "true"`, `nvidia.com/gpu: 2`), waits: "GPUs are not chosen by NUMA node",
	},
	"a NUMA binding is true or false": {
		pod: annotated(`nvidia.com/numa-bind: "yes"`, `nvidia.com/gpu: 2`), waits: "write true or false",
	},
	"GPUs have no indexes": {
		pod:   annotated(`nvidia.com/use-gpuindexes: "0,1"`, `nvidia.com/gpu: 1`),
		waits: "GPUs have no indexes: choose them by nvidia.com/use-gpuuuid",
	},
	"HAMi's ways to share a GPU are not supported": {
		pod:   annotated(`nvidia.com/vgpu-mode: hami-core`, `nvidia.com/gpu: 1`),
		waits: `annotation nvidia.com/vgpu-mode is "hami-core"`,
	},
	"parts of GPUs are packed": {
		pod:  annotated(`hami.io/gpu-scheduler-policy: binpack`, `nvidia.com/gpumem: 1024`),
		gets: "main: GPU-3/memory=1Gi",
	},
	"counted GPUs are connected": {
		pod:  annotated(`hami.io/gpu-scheduler-policy: topology-aware`, `nvidia.com/gpu: 2`),
		gets: "main: GPU-2/cards=1 GPU-3/cards=1",
	},
	"whole GPUs are spread": {
		pod:  annotated(`hami.io/gpu-scheduler-policy: spread`, `nvidia.com/gpu: 2`),
		gets: "main: GPU-2/cards=1 GPU-3/cards=1",
	},
	"parts of GPUs are not spread": {
		pod:   annotated(`hami.io/gpu-scheduler-policy: spread`, `nvidia.com/gpumem: 1024`),
		waits: `annotation hami.io/gpu-scheduler-policy is "spread": parts of GPUs are packed`,
	},
	"an unknown policy is a mistake": {
		pod: annotated(`hami.io/gpu-scheduler-policy: best`, `nvidia.com/gpu: 1`), waits: "none of HAMi's policies",
	},
	"a pod does not choose how nodes are compared": {
		pod: annotated(`hami.io/node-scheduler-policy: spread`, `nvidia.com/gpu: 1`), waits: "set scoringStrategy",
	},
	"annotations of a pod without devices have no effect": {pod: annotated(`nvidia.com/use-gputype: ""`, "")},
}

// Each form of a pod that KAI's documents show.
var kaiTests = map[string]namesTest{
	"a fraction is of the memory of one GPU": {
		pod: annotated(`gpu-fraction: "0.5"`, ""), gets: "main: GPU-3/memory=40Gi",
	},
	"a fraction is of the first container": {
		pod:  "metadata: {annotations: {gpu-fraction: '0.25'}}\nspec: {containers: [{name: a}, {name: b}]}",
		gets: "a: GPU-3/memory=20Gi",
	},
	"a fraction is of the container that is named": {
		pod: "metadata: {annotations: {gpu-fraction: '.25', gpu-fraction-container-name: b}}\n" +
			"spec: {containers: [{name: a}, {name: b}]}",
		gets: "b: GPU-3/memory=20Gi",
	},
	"a fraction is of each of several GPUs": {
		pod:  annotated(`gpu-fraction: "0.5", gpu-fraction-num-devices: "2"`, ""),
		gets: "main: GPU-2/memory=40Gi GPU-3/memory=40Gi",
	},
	"memory is in MiB": {pod: annotated(`gpu-memory: "2000"`, ""), gets: "main: GPU-3/memory=2000Mi"},
	"memory is of each of several GPUs": {
		pod:  annotated(`gpu-memory: "2000", gpu-fraction-num-devices: "2"`, ""),
		gets: "main: GPU-2/memory=2000Mi GPU-3/memory=2000Mi",
	},
	"memory of a container": {
		pod: annotated(`nvidia.com/container.main.gpu-memory.request: 8Gi`, ""), gets: "main: GPU-3/memory=8Gi",
	},
	"a limit of a container is its request": {
		pod: annotated(`nvidia.com/container.main.gpu-memory.limit: 8Gi`, ""), gets: "main: GPU-3/memory=8Gi",
	},
	"request and limit of several containers": {
		pod: `metadata:
  annotations:
    nvidia.com/container.a.gpu-memory.request: 8Gi
    nvidia.com/container.a.gpu-memory.limit: 8192Mi
    nvidia.com/container.b.gpu-memory.request: 2Gi
spec: {containers: [{name: a}, {name: b}]}`,
		gets: "a: GPU-3/memory=8Gi, b: GPU-3/memory=2Gi",
	},
	"a fraction of a GPU of a model": {
		pod: annotated(`gpu-fraction: "0.5", nvidia.com/use-gputype: H100`, ""), gets: "main: GPU-2/memory=40Gi",
	},
	"time slices are how GPUs are shared": {
		pod: annotated(`gpu-fraction: "0.5", kai.scheduler/gpu-compute-sharing-mode: time-slicing, `+
			`nvidia.com/container.main.gpu-compute.mode: time-slicing`, ""),
		gets: "main: GPU-3/memory=40Gi",
	},

	"memory beyond a request is not supported": {
		pod: annotated(`nvidia.com/container.main.gpu-memory.request: 8Gi, `+
			`nvidia.com/container.main.gpu-memory.limit: 16Gi`, ""),
		waits: `annotation nvidia.com/container.main.gpu-memory.limit is "16Gi": it differs from the request`,
	},
	"a fraction beyond a fraction is not supported": {
		pod:   annotated(`gpu-fraction: "0.5", gpu-fraction.limit: "0.7"`, ""),
		waits: `annotation gpu-fraction.limit is "0.7"`,
	},
	"sharing of multiprocessors is not supported": {
		pod:   annotated(`gpu-fraction: "0.5", kai.scheduler/gpu-compute-sharing-mode: sm-sharing`, ""),
		waits: "containers share a GPU by time slices",
	},
	"sharing of multiprocessors by a container is not supported": {
		pod: annotated(`nvidia.com/container.main.gpu-memory.request: 8Gi, `+
			`nvidia.com/container.main.gpu-compute.mode: sm-sharing`, ""),
		waits: "containers share a GPU by time slices",
	},
	"a part of the multiprocessors is not supported": {
		pod:   annotated(`gpu-fraction: "0.5", gpu-sm-percentage: "30"`, ""),
		waits: "KAI's ways to share multiprocessors are not supported",
	},
	"what KAI's binder writes is refused": {
		pod:   annotated(`nvidia.com/container.main.gpus.devices: GPU-0`, ""),
		waits: "KAI's binder alone writes it",
	},
	"an unknown key of a container is refused": {
		pod: annotated(`nvidia.com/container.main.gpu-memory: 8Gi`, ""), waits: "no annotation for a container",
	},
	"a whole GPU is no fraction":  {pod: annotated(`gpu-fraction: "1"`, ""), waits: "between 0 and 1"},
	"a fraction is positive":      {pod: annotated(`gpu-fraction: "-0.5"`, ""), waits: "between 0 and 1"},
	"a fraction is a number":      {pod: annotated(`gpu-fraction: half`, ""), waits: "between 0 and 1"},
	"a fraction has few decimals": {pod: annotated(`gpu-fraction: "0.3333333"`, ""), waits: "at most 6 decimals"},
	"memory is a positive number": {pod: annotated(`gpu-memory: "-1"`, ""), waits: "write a number of MiB"},
	"memory has no unit":          {pod: annotated(`gpu-memory: 2Gi`, ""), waits: "write a number of MiB"},
	"a container's memory has a unit": {
		pod: annotated(`nvidia.com/container.main.gpu-memory.request: "8"`, ""), waits: "a quantity of 1Mi or more",
	},
	"a fraction and memory are a mistake": {
		pod: annotated(`gpu-fraction: "0.5", gpu-memory: "2000"`, ""), waits: "remove one",
	},
	"a fraction and limits are a mistake": {
		pod: annotated(`gpu-fraction: "0.5"`, "nvidia.com/gpu: 1"), waits: "whole GPUs or parts of some",
	},
	"parts by two names are a mistake": {
		pod:   annotated(`gpu-fraction: "0.5", nvidia.com/container.main.gpu-memory.request: 8Gi`, ""),
		waits: "by another name, too",
	},
	"the container must be there": {
		pod: annotated(`gpu-fraction: "0.5", gpu-fraction-container-name: b`, ""), waits: "no such container",
	},
	"the container of a key must be there": {
		pod: annotated(`nvidia.com/container.b.gpu-memory.request: 8Gi`, ""), waits: `no container "b"`,
	},
	"a number of GPUs is one": {
		pod: annotated(`gpu-fraction: "0.5", gpu-fraction-num-devices: "0"`, ""), waits: "from 1 to 128",
	},
	"a number of GPUs belongs to a part": {
		pod: annotated(`gpu-fraction-num-devices: "2"`, "nvidia.com/gpu: 1"), waits: "to which it belongs",
	},
}

func TestPodsOfHAMiGetExactDevicesOrAReason(t *testing.T) { testNames(t, hamiTests) }

func TestPodsOfKAIGetExactDevicesOrAReason(t *testing.T) { testNames(t, kaiTests) }

// testNames schedules each pod on the node, and lints it. Lint has an error for each pod that no
// node could serve, with the same text, and for no other.
func testNames(t *testing.T, tests map[string]namesTest) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: v1\nkind: Pod\n" + test.pod + "\n"
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
				t.Fatal(err)
			}
			pod.UID = "p"
			for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range list {
					list[i].Resources.Requests = list[i].Resources.Limits // as the API server does
				}
			}
			s := newScheduler(t)
			allocated, waits, malformed := s.allocate(t, pod)
			if got := sharesOf(t, allocated); got != test.gets {
				t.Errorf("it gets %q, want %q", got, test.gets)
			}
			if (waits == "") != (test.waits == "") || !strings.Contains(waits, test.waits) {
				t.Errorf("it waits: %q\nwant %q", waits, test.waits)
			}
			if malformed != (test.waits != "" && !test.node) {
				t.Errorf("malformed is %v", malformed)
			}
			for _, cluster := range []*lint.Cluster{nil, lint.NewCluster([]*corev1.Node{s.node})} {
				found, err := lint.File("pod.yaml", []byte(text), cluster)
				if err != nil {
					t.Fatal(err)
				}
				var texts []string
				for _, finding := range found {
					if finding.Severity == lint.Error {
						texts = append(texts, finding.Message)
					}
				}
				if (len(texts) > 0) != malformed || malformed && !slices.Contains(texts, waits) {
					t.Errorf("lint says %q, and the pod waits: %q", texts, waits)
				}
			}
		})
	}
}

// sharesOf returns what containers are allocated, in the order of their names.
func sharesOf(t *testing.T, allocated *types.PodInfo) string {
	t.Helper()
	if allocated == nil {
		return ""
	}
	containers := maps.Collect(allocated.Containers())
	var all []string
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		var shares []string
		for request, from := range containers[name].AllocateFrom {
			path, err := resource.ParsePath(from)
			if err != nil {
				t.Fatal(err)
			}
			quantity := fmt.Sprint(containers[name].DevRequests[request])
			if path.Resource() == "memory" {
				quantity = apiresource.NewQuantity(containers[name].DevRequests[request], apiresource.BinarySI).String()
			}
			shares = append(shares, fmt.Sprintf("%s/%s=%s", path.DeviceID(), path.Resource(), quantity))
		}
		if slices.Sort(shares); len(shares) > 0 {
			all = append(all, name+": "+strings.Join(shares, " "))
		}
	}
	return strings.Join(all, ", ")
}
