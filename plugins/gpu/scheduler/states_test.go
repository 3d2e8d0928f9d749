// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

var rewriteStates = flag.Bool("rewrite", false, "record the states of testdata/states.txt again")

const (
	statesFile     = "testdata/states.txt"
	recordedStates = 300
	statesHeader   = `# Clusters with half of their GPUs in use, and the next pod: both filters are tested on them.
# Recorded by: go test ./plugins/gpu/scheduler -run InEachRecordedState -rewrite
# node DRAWING: GPUs are letters, close groups are separated by spaces, wide ones by bars.
# pod CONTAINER …: a pod of the node above. Its containers in the order of the spec (init, side, main), with
# their GPUs.
# next CONTAINER …: the pod that comes next, with the number of GPUs that each container counts.
`
)

// The prefixes of containers in the file, by their kinds.
var kindNames = map[grouptree.Kind]string{grouptree.Init: "init", grouptree.Sidecar: "side", grouptree.Regular: "main"}

// container is a container that counts GPUs, and those that it was allocated, each a letter.
type container struct {
	kind  grouptree.Kind
	count int64
	gpus  string
}

// pod is the containers of a pod in the order of its spec.
type pod []container

// spec returns the pod as the API server has it.
func (p pod) spec(name string) *v1.Pod {
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-a-pod"}}
	for i, c := range p {
		container := v1.Container{Name: fmt.Sprint("c", i)}
		if c.count > 0 {
			quantity := *apiresource.NewQuantity(c.count, apiresource.DecimalSI)
			list := v1.ResourceList{v1.ResourceName(gpu.Resource): quantity}
			container.Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		}
		switch c.kind {
		case grouptree.Init:
			spec.Spec.InitContainers = append(spec.Spec.InitContainers, container)
		case grouptree.Sidecar:
			container.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			spec.Spec.InitContainers = append(spec.Spec.InitContainers, container)
		default:
			spec.Spec.Containers = append(spec.Spec.Containers, container)
		}
	}
	return spec
}

// info returns the pod as plugins see it, and its containers.
func (p pod) info(name string) (*types.PodInfo, []grouptree.Container) {
	info, containers := types.NewPodInfo(), []grouptree.Container{}
	info.Name = name
	for i, c := range p {
		counted := types.ContainerInfo{
			KubeRequests: types.ResourceList{}, DevRequests: types.ResourceList{},
			AllocateFrom: types.ResourceLocation{},
		}
		if c.count > 0 {
			counted.KubeRequests[gpu.Resource] = c.count
		}
		name := fmt.Sprint("c", i)
		if c.kind == grouptree.Init {
			info.InitContainers[name] = counted
		} else {
			info.RunningContainers[name] = counted
		}
		containers = append(containers, grouptree.Container{Name: name, Kind: c.kind})
	}
	return info, containers
}

// String returns the pod as in the file, without the first word of its line.
func (p pod) String() string {
	var words []string
	for _, c := range p {
		of := c.gpus
		if of == "" && c.count > 0 {
			of = fmt.Sprint(c.count)
		}
		words = append(words, kindNames[c.kind]+"="+of)
	}
	return strings.Join(words, " ")
}

// parsePod reads what String returns.
func parsePod(t *testing.T, text string) (p pod) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		name, of, _ := strings.Cut(word, "=")
		var c container
		for kind, called := range kindNames {
			if name == called {
				c.kind = kind
			}
		}
		if kindNames[c.kind] != name {
			t.Fatalf("%s: a container %q in %q", statesFile, name, text)
		}
		if _, err := fmt.Sscan(of, &c.count); err != nil {
			c.gpus, c.count = of, int64(len(of))
		}
		p = append(p, c)
	}
	return p
}

// state is a cluster with pods, and the pod that comes next.
type state struct {
	drawings []string
	pods     [][]pod // of each node
	next     pod
}

// recordState has random pods come until half of a random cluster's GPUs are in use.
func recordState(t *testing.T, seed uint64) state {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 8))
	var recorded state
	for range 2 + random.IntN(3) {
		recorded.drawings = append(recorded.drawings, strings.TrimSpace(randomDrawing(random)))
	}
	recorded.pods = make([][]pod, len(recorded.drawings))
	s := newSimulation(t, allocation.TopologyPrefer, recorded.drawings...)
	for i := 0; i < 100 && !s.halfFull(); i++ {
		comes := randomPod(random)
		s.place(requestOf(comes.info(fmt.Sprint("pod-", i))))
		for at, n := range s.nodes {
			if len(n.holders) > len(recorded.pods[at]) {
				recorded.pods[at] = append(recorded.pods[at], comes.allocated(n.holders[len(n.holders)-1].Pod))
			}
		}
	}
	recorded.next = randomPod(random)
	return recorded
}

// halfFull reports whether half of the GPUs, or more, are in use.
func (s *simulation) halfFull() bool {
	total := 0
	for _, n := range s.nodes {
		total += n.gpus
	}
	free, _ := s.free()
	return 2*free <= total
}

// allocated returns the pod with the GPUs of its allocation.
func (p pod) allocated(info *types.PodInfo) pod {
	p = slices.Clone(p)
	for i := range p {
		container := info.GetContainerInPod(fmt.Sprint("c", i))
		p[i].gpus = strings.Join(gpu.Allocated(container), "")
	}
	return p
}

// write writes the state in the file's form.
func (recorded state) write(to *bytes.Buffer) {
	for i, drawing := range recorded.drawings {
		fmt.Fprintf(to, "node %s\n", drawing)
		for _, p := range recorded.pods[i] {
			fmt.Fprintf(to, "pod %s\n", p)
		}
	}
	fmt.Fprintf(to, "next %s\n", recorded.next)
}

// readStates reads the file.
func readStates(t *testing.T) (all []state) {
	t.Helper()
	content, err := os.ReadFile(statesFile)
	if err != nil {
		t.Fatal(err)
	}
	var now state
	for line := range strings.Lines(string(content)) {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "#":
		case "node":
			now.drawings, now.pods = append(now.drawings, text), append(now.pods, nil)
		case "pod":
			at := len(now.pods) - 1
			now.pods[at] = append(now.pods[at], parsePod(t, text))
		case "next":
			now.next = parsePod(t, text)
			all, now = append(all, now), state{}
		default:
			t.Fatalf("%s: a line %q", statesFile, line)
		}
	}
	return all
}

// load returns the state as a simulation, and its nodes as upstream's scheduler has them.
func (recorded state) load(t *testing.T) (*simulation, map[string]*framework.NodeInfo) {
	t.Helper()
	s := newSimulation(t, allocation.TopologyPrefer, recorded.drawings...)
	upstream := s.upstream()
	for i, n := range s.nodes {
		names := map[string]types.ResourceName{} // of GPUs
		for _, resource := range s.stateOf(n).Resources() {
			if id, kind, ok := gpu.Split(resource.Name); ok && kind == gpu.Cards {
				names[id] = resource.Name
			}
		}
		for j, p := range recorded.pods[i] {
			info, containers := p.info(fmt.Sprint("pod-", j))
			info.NodeName = n.name
			for k, c := range p {
				container := info.GetContainerInPod(fmt.Sprint("c", k)) // with the pod's own maps
				for id := range strings.SplitSeq(c.gpus, "") {
					container.DevRequests[names[id]], container.AllocateFrom[names[id]] = 1, names[id]
				}
			}
			n.holders = append(n.holders, allocation.NewHolder(info.Name, info, containers))
			upstream[n.name].AddPod(p.spec(info.Name))
		}
		n.state = nil
	}
	return s, upstream
}

// upstream returns the nodes, without pods, as upstream's scheduler has them.
func (s *simulation) upstream() map[string]*framework.NodeInfo {
	nodes := map[string]*framework.NodeInfo{}
	for _, n := range s.nodes {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
		node.Status.Allocatable = v1.ResourceList{
			v1.ResourceName(gpu.Resource): *apiresource.NewQuantity(int64(n.gpus), apiresource.DecimalSI),
			v1.ResourcePods:               *apiresource.NewQuantity(110, apiresource.DecimalSI),
		}
		nodes[n.name] = framework.NewNodeInfo()
		nodes[n.name].SetNode(node)
	}
	return nodes
}
