// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// simgpu is the simulated GPUs' device scheduler from its .so, which a process opens once.
var simgpu devicescheduler.DeviceScheduler

// fromSharedLibrary returns the simulated GPUs' device scheduler as make build has built it.
func fromSharedLibrary(b *testing.B) devicescheduler.DeviceScheduler {
	const built = "../../../_output/plugins/scheduler"
	if simgpu == nil {
		loaded, rejected := pluginload.LoadDir(b.Context(), built, pluginload.Schedulers())
		for _, plugin := range loaded {
			if filepath.Base(plugin.File) == "simgpu.so" {
				simgpu = plugin.Plugin
			}
		}
		if simgpu == nil {
			b.Fatalf("no simgpu.so could be loaded from %s (%v): run make build", built, rejected)
		}
	}
	return simgpu
}

// published is a device scheduler without the methods that say that its answers may be remembered.
type published struct {
	devicescheduler.DeviceScheduler
}

// gpuNodes returns nodes of 8 GPUs in pairs, and for each the pods that hold these.
func gpuNodes(b *testing.B, count int, held ...int) (nodes []*v1.Node, holders []*v1.Pod) {
	gpus := make([]gpu.GPU, 8)
	for i := range gpus {
		gpus[i] = gpu.GPU{ID: fmt.Sprint("gpu-", i), Memory: 80 << 30, Groups: []int{i / 2, i / 4}}
	}
	for n := range count {
		info := sdk.NewNodeInfoWithName(fmt.Sprint("n", n))
		gpu.Publish(info, gpu.Resource, gpus)
		annotation, err := deviceinfo.EncodeNode(info)
		if err != nil {
			b.Fatal(err)
		}
		nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: info.Name, UID: types.UID(info.Name), ResourceVersion: "1",
			Annotations: map[string]string{deviceinfo.Annotation: annotation},
		}})
		for _, i := range held {
			holders = append(holders, holderOf(b, info.Name, i))
		}
	}
	return nodes, holders
}

// holderOf returns a pod that holds a GPU of a node of gpuNodes.
func holderOf(b *testing.B, node string, i int) *v1.Pod {
	name := fmt.Sprintf("%s-%d", node, i)
	cards := sdk.ResourceName(fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/gpu-%d/cards", i/4, i/2, i))
	annotation, err := deviceinfo.EncodePod(&sdk.PodInfo{Name: name, NodeName: node,
		RunningContainers: map[string]sdk.ContainerInfo{
			"main": {DevRequests: sdk.ResourceList{cards: 1}, AllocateFrom: sdk.ResourceLocation{cards: cards}},
		}})
	if err != nil {
		b.Fatal(err)
	}
	return annotated(assumed(newPod(name, 1), node), annotation)
}

// filter runs a pod's cycle up to Filter on all nodes, which must fit.
func (f *fixture) filter(pod *v1.Pod, nodes []fwk.NodeInfo) fwk.CycleState {
	state := framework.NewCycleState()
	if _, status := f.plugin.PreFilter(f.Context(), state, pod, nodes); !status.IsSuccess() {
		f.Fatal(status)
	}
	for _, node := range nodes {
		if status := f.plugin.Filter(f.Context(), state, pod, node); !status.IsSuccess() {
			f.Fatal(status)
		}
	}
	return state
}

// BenchmarkFilter is what users get: PreFilter and Filter per node, for a pod of 4 GPUs on
// fragmented nodes of 8, with a plugin from a .so. One that has the published interface alone is
// asked about every node each time, with copies of its arguments and a deadline; of one that only
// translates, the answers are remembered. It reports how many times faster that is.
func BenchmarkFilter(b *testing.B) {
	const count = 100
	plugin := fromSharedLibrary(b)
	var asked, remembered time.Duration
	for _, bench := range []struct {
		name   string
		plugin devicescheduler.DeviceScheduler
		took   *time.Duration
	}{{"asked", published{plugin}, &asked}, {"remembered", plugin, &remembered}} {
		b.Run(bench.name, func(b *testing.B) {
			nodes, holders := gpuNodes(b, count, 0, 2)
			f := newFixtureOf(b, bench.plugin, nodes, holders...)
			infos, pod := f.nodes(), newPod("p", 4)
			f.filter(pod, infos)
			b.ReportAllocs()
			for b.Loop() {
				f.filter(pod, infos)
			}
			*bench.took = b.Elapsed() / time.Duration(b.N*count)
			b.ReportMetric(float64(bench.took.Nanoseconds()), "ns/node")
			if remembered > 0 && asked > 0 {
				b.ReportMetric(float64(asked)/float64(remembered), "×faster")
			}
		})
	}
}

// BenchmarkGrowth is all that the plugin does for a pod of one GPU before it is bound, on clusters
// in which one node has changed since the pod before, with what it reads in the CPU's caches and,
// as in a scheduler at work, evicted from them by other work. It reports how many times longer that
// takes on ten times the nodes. Upstream scores a part of the nodes, which is smaller in large
// clusters.
func BenchmarkGrowth(b *testing.B) {
	for _, caches := range []struct {
		name  string
		other []byte
	}{{"warm", nil}, {"cold", make([]byte, 64<<20)}} {
		var few, many time.Duration
		for _, bench := range []struct {
			count, scored int
			took          *time.Duration
		}{{500, 230, &few}, {5000, 500, &many}} {
			b.Run(fmt.Sprintf("caches=%s/nodes=%d", caches.name, bench.count), func(b *testing.B) {
				nodes, _ := gpuNodes(b, bench.count)
				f := newFixtureOf(b, fromSharedLibrary(b), nodes)
				infos := f.nodes()
				f.filter(newPod("first", 1), infos)
				turn, scores := 0, make(fwk.NodeScoreList, bench.scored)
				var took []time.Duration
				b.ReportAllocs()
				for b.Loop() {
					for i := 0; i < len(caches.other); i += 64 {
						caches.other[i]++
					}
					turn++
					pod, at := newPod(fmt.Sprint("p", turn), 1), infos[turn%len(infos)]
					scored := infos[turn%(len(infos)-bench.scored):][:bench.scored]
					began := time.Now()
					state := framework.NewCycleState()
					f.plugin.PreFilter(b.Context(), state, pod, infos)
					for _, node := range scored {
						f.plugin.Filter(b.Context(), state, pod, node)
					}
					f.plugin.PreScore(b.Context(), state, pod, scored)
					for i, node := range scored {
						scores[i].Score, _ = f.plugin.Score(b.Context(), state, pod, node)
					}
					f.plugin.NormalizeScore(b.Context(), state, pod, scores)
					name := at.Node().Name
					if status := f.plugin.Reserve(b.Context(), state, pod, name); !status.IsSuccess() {
						b.Fatal(status)
					}
					f.plugin.Unreserve(b.Context(), state, pod, name)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				*bench.took = took[len(took)/2]
				b.ReportMetric(float64(bench.took.Nanoseconds()), "plugin-ns/op(median)")
				if few > 0 && many > 0 {
					b.ReportMetric(float64(many)/float64(few), "×longer")
				}
			})
		}
	}
}

// BenchmarkTaints is PreFilter and Filter for a pod of one GPU on 500 nodes: without taints; where
// each node has a cordoned GPU, for a pod that does not tolerate that; and for one that does, whose
// verdicts are not cached. It reports how many times longer than without taints that takes.
func BenchmarkTaints(b *testing.B) {
	var without time.Duration
	for _, bench := range []struct {
		name     string
		cordoned []deviceinfo.DeviceTaint
		pod      *v1.Pod
	}{
		{"none", nil, newPod("p", 1)},
		{"others", []deviceinfo.DeviceTaint{cordon("A")}, newPod("p", 1)},
		{"tolerated", []deviceinfo.DeviceTaint{cordon("A")}, tolerating(newPod("p", 1), deviceinfo.CordonKey)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			nodes := make([]*v1.Node, 500)
			for i := range nodes {
				nodes[i] = tainted(newNode(fmt.Sprint("n", i), "A", "B", "C", "D"), bench.cordoned...)
			}
			f := newFixture(b, nodes)
			infos := f.nodes()
			f.filter(bench.pod, infos)
			b.ReportAllocs()
			for b.Loop() {
				f.filter(bench.pod, infos)
			}
			took := b.Elapsed() / time.Duration(b.N)
			if bench.cordoned == nil {
				without = took
			}
			if without > 0 {
				b.ReportMetric(float64(took)/float64(without), "×longer")
			}
		})
	}
}
