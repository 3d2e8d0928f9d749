// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/lint"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// scheduler is the scheduler's view of one node: with four GPUs of a plugin file, of which two each
// are connected, and with three NICs and a camera of kubelet device plugins.
type scheduler struct {
	set   *allocation.Set
	nodes *nodestate.Cache
	node  *corev1.Node
}

// models are the models of its GPUs. That of the last one is not known.
const models = `{"gpugrp1/0/gpugrp0/0/gpu/GPU-0":{"productName":"NVIDIA A100-SXM4-80GB"},` +
	`"gpugrp1/0/gpugrp0/0/gpu/GPU-1":{"productName":"NVIDIA A100-SXM4-80GB"},` +
	`"gpugrp1/0/gpugrp0/1/gpu/GPU-2":{"productName":"NVIDIA H100 80GB HBM3"}}`

func newScheduler(t *testing.T) *scheduler {
	t.Helper()
	info := types.NewNodeInfoWithName("n")
	var gpus []gpu.GPU
	for i := range 4 {
		gpus = append(gpus, gpu.GPU{ID: fmt.Sprint("GPU-", i), Memory: 80 << 30, Groups: []int{i / 2, 0}})
	}
	gpu.Publish(info, gpu.Resource, gpus)
	for _, device := range []kubeletdevice.Device{
		{Resource: "vendor.example/nic", ID: "eth0", NUMA: []int{0}},
		{Resource: "vendor.example/nic", ID: "eth1", NUMA: []int{1}},
		{Resource: "vendor.example/nic", ID: "eth2", NUMA: []int{1}},
		{Resource: "smarter-devices/video0", ID: "v0"},
	} {
		name, err := kubeletdevice.Name(device)
		if err != nil {
			t.Fatal(err)
		}
		info.Capacity[name], info.Allocatable[name] = 1, 1
		info.Capacity[device.Resource]++
		info.Allocatable[device.Resource]++
	}
	text, err := deviceinfo.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	s := &scheduler{
		set: allocation.New(klog.Logger{}, nil,
			allocation.Named{File: "built in", Plugin: kubeletplugin.New()},
			allocation.Named{File: "gpus.so", Plugin: gpuscheduler.New("gpus", gpu.Resource)}),
		node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "n", ResourceVersion: "1", Annotations: map[string]string{
				deviceinfo.Annotation: text, deviceinfo.AttributesAnnotation: models,
			},
		}},
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(s.node); err != nil {
		t.Fatal(err)
	}
	s.nodes = nodestate.New(s.set, corelisters.NewNodeLister(indexer), clock.RealClock{})
	s.nodes.Observe(t.Context(), s.node)
	return s
}

// events returns the mistakes of which the scheduler writes an event.
func (s *scheduler) events(pod *corev1.Pod) string {
	var texts []string
	mistakes, _ := s.nodes.Requests.Mistakes(pod)
	for _, mistake := range mistakes {
		if !mistake.Option || !s.set.Reads(types.ResourceName(mistake.Word)) {
			texts = append(texts, mistake.String())
		}
	}
	return strings.Join(texts, "; ")
}

// schedule returns the devices that the container main gets, as <ID>/<resource>, sorted. Otherwise
// waits says why the pod waits. malformed says that no node could change that.
func (s *scheduler) schedule(t *testing.T, pod *corev1.Pod) (devices, waits string, malformed bool) {
	t.Helper()
	allocated, waits, malformed := s.allocate(t, pod)
	if allocated == nil {
		return "", waits, malformed
	}
	var names []string
	for _, name := range slices.Sorted(maps.Values(allocated.RunningContainers["main"].AllocateFrom)) {
		path, err := resource.ParsePath(name)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, path.DeviceID()+"/"+path.Resource())
	}
	slices.Sort(names)
	return strings.Join(names, " "), "", false
}

// allocate returns what a pod is allocated, nil for a pod that requests no devices. Otherwise waits
// says why the pod waits. malformed says that no node could change that.
func (s *scheduler) allocate(t *testing.T, pod *corev1.Pod) (allocated *types.PodInfo, waits string, malformed bool) {
	t.Helper()
	request, err := s.nodes.Requests.Read(pod)
	switch {
	case err != nil:
		return nil, err.Error(), true
	case request == nil:
		return nil, "", false
	}
	view, err := s.nodes.View(t.Context(), s.node, nil)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := s.nodes.DevicesFor(t.Context(), view, pod)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := s.set.Fit(t.Context(), devices, request)
	if err != nil {
		t.Fatal(err)
	}
	if !verdict.Fits {
		reasons := verdict.Reasons
		if verdict.Shortage != nil {
			reasons = append(reasons, verdict.Shortage.String())
		}
		return nil, strings.Join(reasons, "; "), false
	}
	if allocated, err = s.set.Allocate(t.Context(), devices, request); err != nil {
		t.Fatal(err)
	}
	return allocated, "", false
}

// With the nodes, lint knows the devices of kubelet device plugins by their IDs.
func TestDevicesThatNoNodeHasAreFound(t *testing.T) {
	s := newScheduler(t)
	cluster := lint.NewCluster([]*corev1.Node{s.node})
	for request, want := range map[string]string{
		`"numa/A/vendor.example:nic/=eth1/device":1`: "",
		`"numa/A/vendor.example:nic/=eth1/device":0`: "",
		`"numa/=1/vendor.example:nic":1`:             "",
		`"numa/A/vendor.example:nic/=eht1/device":1`: `no node has the device eht1 of vendor.example/nic: the pod ` +
			`waits for it; did you mean "eth1"?`,
		`"numa/A/vendor.example:nic/=eth9/device":0`: `no node has the device eth9 of vendor.example/nic: excluding ` +
			`it has no effect; did you mean "eth0"?`,
		`"numa/=7/vendor.example:nic":1`: `no node has a device of vendor.example/nic on NUMA node 7`,
	} {
		pod := podOf("vendor.example/nic=1 nvidia.com/gpu=1", request)
		whole := pod.DeepCopy()
		whole.Annotations[deviceinfo.Annotation] = `{"requests":{` + request + `}}`
		pods := []*corev1.Pod{pod}
		if strings.HasSuffix(request, ":0") {
			pods = append(pods, whole)
		}
		for _, pod := range pods {
			errors, warnings := lintOf(t, pod, cluster)
			if errors != "" || (warnings == "") != (want == "") || !strings.Contains(warnings, want) {
				t.Errorf("%v: errors %q, warnings %q, want %q", pod.Annotations, errors, warnings, want)
			}
		}
	}
}

// podOf returns a pod with these limits, as "name=count name=count", and requests of its container
// main.
func podOf(limits, requests string) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	if requests != "" {
		pod.Annotations = map[string]string{
			deviceinfo.Annotation: `{"runningcontainer":{"main":{"requests":{` + requests + `}}}}`,
		}
	}
	list := corev1.ResourceList{}
	for _, limit := range strings.Fields(limits) {
		name, count, _ := strings.Cut(limit, "=")
		list[corev1.ResourceName(name)] = apiresource.MustParse(count)
	}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	return pod
}

// What a user writes, what the container gets, and what lint says of it without a cluster. Each
// request is met as it is written, or the pod waits and the text names the mistake, or an event
// does. Lint has an error for each pod that no cluster could schedule, and for no other.
func TestLintAndTheSchedulerReadTheSameRequests(t *testing.T) {
	for _, test := range []struct {
		limits, requests string
		gets             string // the devices, or
		waits            string // a part of the text that says why it waits
		event            string // a part of the event
		warning          string // of lint alone: a part of it
	}{
		// Counts: a domain has no need of a dot.
		{limits: "smarter-devices/video0=1", gets: "v0/device"},
		{limits: "smarter-devices/video0=1", requests: `"numa/A/smarter-devices:video0":1`, gets: "v0/device"},
		{
			limits: "smarter-devices/video0=1", requests: `"smarter-devices/video0":1`, gets: "v0/device",
		},
		{
			limits: "nvidia.com/gpu=1", requests: `"smarter-devices/video9":1`,
			waits: `no device scheduler serves smarter-devices/video9 of container "main"`,
		},
		{
			requests: `"numa/A/smarter-devices/video0":1`, waits: "write numa/A/smarter-devices:video0",
		},
		{
			limits: "nvidia.com/gpu=1", requests: `"gpu/gpu-generate-topologie":1`, gets: "GPU-3/cards",
			event: `did you mean "gpu/gpu-generate-topology"?`,
		},

		// Devices by their IDs: where it can be, and else an error.
		{
			limits: "vendor.example/nic=1", requests: `"numa/A/vendor.example:nic/=eth2/device":1`, gets: "eth2/device",
		},
		{limits: "nvidia.com/gpu=1", requests: `"gpu/=GPU-0/cards":1`, waits: "gpu cannot be requested by its ID"},
		{limits: "nvidia.com/gpu=1", requests: `"gpugrp0/=1/gpu/a/cards":1`, waits: "gpugrp0 cannot be requested by"},
		{limits: "vendor.example/nic=1", requests: `"numa/=/vendor.example:nic":1`, waits: `has no name behind "="`},
		{
			limits: "vendor.example/nic=1", requests: `"numa/A/vendor.example:nic/=/device":1`,
			waits: `has no name behind "="`,
		},

		// Quantities that no node can serve.
		{limits: "vendor.example/nic=1", requests: `"numa/A/vendor.example:nic":0`, waits: "is 0: request 1 to 4096"},
		{limits: "nvidia.com/gpu=1", requests: `"nvidia.com/gpu":0`, waits: "nvidia.com/gpu is 0: write how much"},
		{limits: "nvidia.com/gpu=1", requests: `"gpu/a/cards":0`, waits: "gpu/a/cards is 0: write how much of it"},
		{
			limits: "nvidia.com/gpu=2", requests: `"gpu/gpu-generate-topology":2`,
			waits: "gpu/gpu-generate-topology is 2: use 1",
		},
		{
			limits:   "vendor.example/nic=1",
			requests: `"numa/A/vendor.example:nic/=eth1/device":1,"numa/B/vendor.example:nic/=eth1/device":0`,
			waits:    "the pod requests and excludes the device eth1",
		},
		{
			requests: `"gpu/a/cards":2`, waits: "have no gpu with 2 of cards (the largest has 1)",
			event: "it is for 2 of one device, which has 1",
		},

		// As many GPUs as limits count, for each request that is written with them.
		{limits: "nvidia.com/gpu=1", requests: `"gpu/a/memory":"20Gi"`, gets: "GPU-3/memory"},
		{limits: "nvidia.com/gpu=2", requests: `"gpu/a/memory":"20Gi"`, gets: "GPU-2/memory GPU-3/cards"},
		{
			limits: "nvidia.com/gpu=3", requests: `"gpu/a/memory":"20Gi","gpu/b/memory":"20Gi"`,
			gets: "GPU-1/memory GPU-2/memory GPU-3/cards",
		},
		{
			limits: "nvidia.com/gpu=2", requests: `"gpu/a/memory":"20Gi","gpu/b/memory":"20Gi"`,
			gets: "GPU-2/memory GPU-3/memory",
		},
		{
			limits: "nvidia.com/gpu=2", requests: `"gpu/a/cards":1,"gpu/a/memory":"20Gi"`,
			gets: "GPU-2/cards GPU-2/memory GPU-3/cards",
		},
		{
			limits: "nvidia.com/gpu=4", requests: `"gpu/a/memory":"20Gi"`,
			gets: "GPU-0/memory GPU-1/cards GPU-2/cards GPU-3/cards",
		},
		{
			limits: "nvidia.com/gpu=5", requests: `"gpu/a/memory":"20Gi"`,
			waits: "too few GPUs for 5 of nvidia.com/gpu",
		},

		// What has no effect.
		{
			limits: "nvidia.com/gpu=1", requests: `"numa/strict":1`, gets: "GPU-3/cards",
			event: "no device scheduler reads this request",
		},
		{
			limits: "nvidia.com/gpu=1", requests: `"gpu/a/cards":1},"scorer":{"gpu/a/cards":7`,
			waits: "scorer 7 is unknown",
		},
		{
			limits:   "vendor.example/nic=1",
			requests: `"numa/A/vendor.example:nic":1},"scorer":{"numa/A/vendor.example:nic":1`,
			gets:     "eth0/device", event: "devices of kubelet device plugins have no scorers",
		},
	} {
		t.Run(test.limits+" "+test.requests, func(t *testing.T) {
			s, pod := newScheduler(t), podOf(test.limits, test.requests)
			devices, waits, malformed := s.schedule(t, pod)
			events := s.events(pod)
			if devices != test.gets || (waits == "") != (test.waits == "") || !strings.Contains(waits, test.waits) {
				t.Errorf("it gets %q, or waits: %q\nwant %q, %q", devices, waits, test.gets, test.waits)
			}
			if (events == "") != (test.event == "") || !strings.Contains(events, test.event) {
				t.Errorf("events %q, want %q", events, test.event)
			}
			errors, warnings := lintOf(t, pod, nil)
			if (errors != "") != malformed || malformed && !strings.Contains(errors, test.waits) {
				t.Errorf("lint says %q, and the pod waits: %q", errors, waits)
			}
			want := test.event + test.warning
			if (warnings == "") != (want == "") || !strings.Contains(warnings, want) {
				t.Errorf("lint warns %q, want %q", warnings, want)
			}
		})
	}
}

// A request for devices is written under a container: for the pod as a whole, no cluster serves it.
func TestLintAndTheSchedulerRefuseDevicesOfThePodAsAWhole(t *testing.T) {
	for request, refused := range map[string]bool{
		`"gpu/a/cards":1`: true, `"gpu/a/memory":"20Gi"`: true, `"numa/A/vendor.example:nic":1`: true,
		`"nvidia.com/gpu":1`: true, `"resource/group/power":1`: true,
		`"gpu/gpu-generate-topology":1`: false, `"numa/A/vendor.example:nic/=eth0/device":0`: false,
	} {
		pod := podOf("nvidia.com/gpu=1 vendor.example/nic=1", "")
		pod.Annotations = map[string]string{deviceinfo.Annotation: `{"requests":{` + request + `}}`}
		_, waits, malformed := newScheduler(t).schedule(t, pod)
		errors, warnings := lintOf(t, pod, nil)
		const want = "a pod as a whole gets no devices: write the request under one of its containers"
		if malformed != refused || (errors != "") != refused || warnings != "" ||
			refused && (!strings.Contains(waits, want) || !strings.Contains(errors, want)) {
			t.Errorf("%s: the pod waits: %q (malformed: %t), lint says %q and warns %q", request, waits, malformed,
				errors, warnings)
		}
	}
}

// lintOf returns the errors and the warnings that lint finds in a pod. The cluster may be nil.
func lintOf(t *testing.T, pod *corev1.Pod, cluster *lint.Cluster) (errors, warnings string) {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		t.Fatal(err)
	}
	found, err := lint.File("pod.yaml", text, cluster)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range found {
		if finding.Severity == lint.Error {
			errors += finding.String() + "\n"
		} else {
			warnings += finding.String() + "\n"
		}
	}
	return errors, warnings
}
