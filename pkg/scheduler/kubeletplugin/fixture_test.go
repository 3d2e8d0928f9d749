// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	names "github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	gpu types.ResourceName = "nvidia.com/gpu"
	nic types.ResourceName = "vendor.example/nic"
	qat types.ResourceName = "intel.com/qat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is the device schedulers with one node.
type fixture struct {
	*testing.T
	set       *allocation.Set
	inventory *allocation.Inventory
	node      *types.NodeInfo
	holders   []*allocation.Holder
}

// newFixture returns a fixture whose node has these devices, each written as resource, NUMA nodes
// and ID: "qat 0 a", "nic 0-1 b", "gpu none c". One that ends in a "!" is unhealthy. It lists all
// of the resources, also those of which it has no device.
func newFixture(t *testing.T, devices ...string) *fixture {
	t.Helper()
	return newFixtureWith(t, nil, devices...)
}

// newFixtureWith returns a fixture with plugins next to the scheduler for kubelet devices.
func newFixtureWith(t *testing.T, plugins []allocation.Named, devices ...string) *fixture {
	t.Helper()
	builtIn := allocation.Named{File: "built in", Plugin: kubeletplugin.New()}
	r := &fixture{T: t, set: allocation.New(klog.Logger{}, nil, append([]allocation.Named{builtIn}, plugins...)...)}
	r.node = types.NewNodeInfoWithName("n1")
	for _, resource := range []types.ResourceName{gpu, nic, qat, lonely} { // its kubelet counts none of them
		r.node.Capacity[resource] = 0
	}
	for _, text := range devices {
		healthy := strings.TrimSuffix(text, "!")
		name := deviceName(t, healthy)
		resource, _, _, _ := names.ParseRequest(name)
		r.node.Capacity[name], r.node.Allocatable[name] = 1, 0
		r.node.Capacity[resource]++
		if healthy == text {
			r.node.Allocatable[name] = 1
		}
	}
	return r.publish()
}

// publish adds the node to the schedulers as it is now.
func (r *fixture) publish() *fixture {
	r.Helper()
	var err error
	if r.inventory, err = r.set.AddNode(r.Context(), r.node.Clone()); err != nil {
		r.Fatal(err)
	}
	return r
}

// deviceName returns the name of a device that is written as resource, NUMA nodes and ID.
func deviceName(t *testing.T, text string) types.ResourceName {
	t.Helper()
	fields := strings.Fields(text)
	resource := map[string]types.ResourceName{"gpu": gpu, "nic": nic, "qat": qat}[fields[0]]
	name, err := names.Request(resource, fields[1], fields[2])
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// spec is a container's counts, and the requests of its annotation.
type spec struct {
	name        string // main when it is empty
	kind        grouptree.Kind
	limits      types.ResourceList
	requests    types.ResourceList
	podRequests types.ResourceList // the requests of the pod as a whole
}

// requestOf returns the request of a pod with these containers, in this order.
func requestOf(name string, specs ...spec) *request.Request {
	pod := types.NewPodInfo()
	pod.Name = name
	made := &request.Request{Pod: pod}
	for _, a := range specs {
		if a.name == "" {
			a.name = "main"
		}
		made.Containers = append(made.Containers, grouptree.Container{Name: a.name, Kind: a.kind})
		maps.Copy(pod.Requests, a.podRequests)
		info := types.ContainerInfo{KubeRequests: a.limits, Requests: a.requests}
		if a.kind == grouptree.Init {
			pod.InitContainers[a.name] = info
		} else {
			pod.RunningContainers[a.name] = info
		}
	}
	return made
}

// state returns the node with the devices that its pods hold.
func (r *fixture) state() *allocation.Node {
	r.Helper()
	node, err := r.set.Node(r.Context(), r.inventory, r.holders)
	if err != nil {
		r.Fatal(err)
	}
	return node
}

// fit returns the verdict for a pod.
func (r *fixture) fit(request *request.Request) allocation.Verdict {
	r.Helper()
	verdict, err := r.set.Fit(r.Context(), r.state(), request)
	if err != nil {
		r.Fatal(err)
	}
	return verdict
}

// refusal returns why a pod does not fit, or "" when it does.
func (r *fixture) refusal(request *request.Request) string {
	r.Helper()
	verdict := r.fit(request)
	_, err := r.set.Allocate(r.Context(), r.state(), request)
	switch {
	case verdict.Fits && err == nil:
		return ""
	case verdict.Fits || err == nil:
		r.Fatalf("the pod fits: %v; and its allocation says: %v", verdict.Fits, err)
	case verdict.Shortage != nil:
		return verdict.Shortage.String()
	}
	return strings.Join(verdict.Reasons, ", ")
}

// run allocates devices to a pod, which holds them from then on, and returns them by container.
func (r *fixture) run(request *request.Request) map[string]string {
	r.Helper()
	if refusal := r.refusal(request); refusal != "" {
		r.Fatalf("pod %s does not fit: nodes %s", request.Pod.Name, refusal)
	}
	pod, err := r.set.Allocate(r.Context(), r.state(), request)
	if err != nil {
		r.Fatal(err)
	}
	uid := fmt.Sprintf("%05d", len(r.holders))
	r.holders = append(r.holders, allocation.NewHolder(uid, pod, request.Containers))
	return allocatedDevices(pod)
}

// allocatedDevices returns the devices of each container as newFixture has them, sorted and with
// commas between them.
func allocatedDevices(pod *types.PodInfo) map[string]string {
	devices := map[string]string{}
	for name, info := range pod.Containers() {
		var texts []string
		for _, from := range info.AllocateFrom {
			resource, numa, id, ok := names.ParseRequest(from)
			if !ok {
				continue
			}
			_, short, _ := strings.Cut(string(resource), "/")
			texts = append(texts, short+" "+numa+" "+id)
		}
		slices.Sort(texts)
		if len(texts) > 0 {
			devices[name] = strings.Join(texts, ", ")
		}
	}
	return devices
}
