// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// cluster is some nodes, the plugin, and the real group scheduler behind it.
type cluster struct {
	t       *testing.T
	plugin  *Scheduler
	nodes   map[string]*types.NodeInfo
	holders map[string][]*types.PodInfo
	prefer  bool    // the cluster prefers topology
	after   bool    // pods have waited
	quality float64 // of the last pod's devices
}

func newCluster(t *testing.T) *cluster {
	return &cluster{
		t:       t,
		plugin:  New("gpus", gpu.Resource),
		nodes:   map[string]*types.NodeInfo{},
		holders: map[string][]*types.PodInfo{},
	}
}

// add adds a node of GPUs of 16 GiB, called by letters, from a drawing: close groups are separated
// by spaces, wide ones by bars. "ab cd | ef gh" is two sockets of two NVLink pairs each.
func (c *cluster) add(name, drawing string) {
	var gpus []gpu.GPU
	close := 0
	for wide, part := range strings.Split(drawing, "|") {
		for _, pair := range strings.Fields(part) {
			for _, id := range pair {
				gpus = append(gpus, gpu.GPU{ID: string(id), Memory: 16 << 30, Groups: []int{close, wide}})
			}
			close++
		}
	}
	node := types.NewNodeInfoWithName(name)
	gpu.Publish(node, gpu.Resource, gpus)
	c.addInfo(node)
}

func (c *cluster) addInfo(node *types.NodeInfo) {
	c.plugin.AddNode(node.Name, node)
	c.nodes[node.Name] = node
}

// place puts the pod on the node and returns the GPUs of its container "app", or why it does not
// fit.
func (c *cluster) place(node string, pod *types.PodInfo) (gpus, reason string) {
	c.t.Helper()
	state := c.nodes[node].Clone()
	for _, holder := range c.holders[node] {
		if err := c.plugin.TakePodResources(state, holder); err != nil {
			c.t.Fatal(err)
		}
		grouptree.Take(state.Used, grouptree.Holdings(holder, nil))
	}
	pod = pod.Clone()
	var plugin devicescheduler.DeviceScheduler = c.plugin
	if c.prefer {
		plugin = c.plugin.Preferring()
	}
	if c.after {
		plugin = c.plugin.AfterWait()
	}
	fits, reasons, _ := plugin.PodFitsDevice(state, pod, false)
	if !fits {
		return "", reasons[0].GetReason()
	}
	inventory, err := grouptree.CompileDeviceTree(state.Allocatable, state.Scorer)
	if err != nil {
		c.t.Fatal(err)
	}
	placed := c.search(inventory, state, pod.Clone())
	if refiner, ok := plugin.(devicescheduler.Refiner); ok && placed != nil {
		refined := pod.Clone()
		c.quality, _ = refiner.Refine(state, refined)
		if better := c.search(inventory, state, refined); better != nil {
			placed = better
		}
	}
	if placed == nil {
		return "", "the group scheduler finds no place"
	}
	c.holders[node] = append(c.holders[node], placed)
	container := placed.GetContainerInPod("app")
	return strings.Join(append(gpu.Allocated(container), gpu.Instances(container)...), ""), ""
}

// search has the group scheduler place a translated pod. It returns nil if the pod does not fit.
func (c *cluster) search(tree *grouptree.DeviceTree, node *types.NodeInfo, pod *types.PodInfo) *types.PodInfo {
	c.t.Helper()
	request, err := grouptree.CompileRequest(pod, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	placement := grouptree.NewPlacer(0).Place(tree, tree.Dense(node.Used), request)
	if !placement.Fits {
		return nil
	}
	request.Apply(tree, placement, pod)
	return pod
}

// counting is a pod whose container counts n GPUs in its limits.
func counting(n int64) *types.PodInfo {
	return requesting(n, nil)
}

// asking is a pod whose container counts n GPUs and writes requests in its annotation.
func requesting(n int64, requests types.ResourceList) *types.PodInfo {
	pod := types.NewPodInfo()
	pod.Name = fmt.Sprintf("pod-%d", n)
	container := types.ContainerInfo{KubeRequests: types.ResourceList{"cpu": 1}, Requests: requests}
	if n > 0 {
		container.KubeRequests[gpu.Resource] = n
	}
	pod.RunningContainers["app"] = container
	return pod
}

// requested returns the names of what the pod's container asks the group scheduler for, without the
// prefix, sorted.
func requested(pod *types.PodInfo) []string {
	var names []string
	for name, quantity := range pod.RunningContainers["app"].DevRequests {
		names = append(names,
			fmt.Sprintf("%s=%d", strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/"), quantity))
	}
	slices.Sort(names)
	return names
}
