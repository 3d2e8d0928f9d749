// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/verdict"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// changeable is gpus that translate a count to as many cards more as its revision says. It grows
// when a node comes that requests it.
type changeable struct {
	*gpus
	revision, wanted atomic.Uint64
}

func (c *changeable) Revision() uint64              { return c.revision.Load() }
func (*changeable) Pure() bool                      { return false }
func (c *changeable) AddNode(string, *sdk.NodeInfo) { c.revision.Store(c.wanted.Load()) }
func (c *changeable) PodFitsDevice(
	node *sdk.NodeInfo, pod *sdk.PodInfo, fill bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	main := pod.RunningContainers["main"]
	if main.KubeRequests["nvidia.com/gpu"] > 0 {
		main.KubeRequests["nvidia.com/gpu"] += int64(c.revision.Load() % 2)
	}
	return c.gpus.PodFitsDevice(node, pod, fill)
}

func (c *changeable) PodAllocate(node *sdk.NodeInfo, pod *sdk.PodInfo) error {
	c.PodFitsDevice(node, pod, true)
	return nil
}

// model is a cluster that changes at random, a plugin that caches verdicts, and one that does not.
// They share the nodes' reservations, but the second computes each node's state again.
type model struct {
	*fixture
	rand    *rand.Rand
	plugin  *changeable
	indexer cache.Indexer // of the informer's nodes
	list    []fwk.NodeInfo
	plain   *Plugin
	made    int
	fewest  int // GPUs of a node
	history []string

	// forgotten pods are released, and still in the snapshot.
	assumed, bound, unresolved, forgotten []*v1.Pod
	// compared is how many verdicts were compared, removed and unverified how often those sets had
	// nodes.
	compared, removed, unverified, simulated int
}

// handle is the framework's, with the model's snapshot.
type handle struct {
	fwk.Handle
	model *model
}

func (h handle) SnapshotSharedLister() fwk.SharedLister { return lister{model: h.model} }
func (h handle) RunFilterPlugins(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo,
) *fwk.Status {
	return h.model.fixture.plugin.Filter(ctx, state, pod, nodeInfo)
}

type lister struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	model *model
}

func (l lister) NodeInfos() fwk.NodeInfoLister         { return l }
func (l lister) List() ([]fwk.NodeInfo, error)         { return l.model.list, nil }
func (l lister) Get(name string) (fwk.NodeInfo, error) { return l.model.node(name), nil }

func newModel(t *testing.T, seed uint64) *model {
	// Of some models, all nodes fit most pods.
	m := &model{rand: rand.New(rand.NewPCG(seed, 0)), plugin: &changeable{gpus: &gpus{}}, fewest: int(seed%2) * 4}
	m.fixture = newFixtureOf(t, m.plugin, nil)
	cached := m.fixture.plugin
	m.indexer = cached.handle.SharedInformerFactory().Core().V1().Nodes().Informer().GetIndexer()
	cached.handle = handle{cached.handle, m}
	m.plain = New(cached.handle, &Shared{
		schedulers: cached.schedulers, nodes: cached.nodes, clock: cached.clock, requeuer: cached.requeuer,
		verdicts: verdict.PassThrough(), nodesSynced: cached.nodesSynced,
	})
	for range 10 + 30*(seed%2) {
		m.addNode()
	}
	return m
}

func (m *model) name(prefix string) string {
	m.made++
	return fmt.Sprint(prefix, m.made)
}

// random returns a random element of a list, or the zero value of an empty one.
func random[T any](m *model, list []T) (one T) {
	if len(list) > 0 {
		one = list[m.rand.IntN(len(list))]
	}
	return one
}

func (m *model) node(name string) *framework.NodeInfo {
	for _, nodeInfo := range m.list {
		if nodeInfo.Node().Name == name {
			return nodeInfo.(*framework.NodeInfo)
		}
	}
	return nil
}

// version returns a version of a node with some GPUs, of ours or of its kubelet's.
func (m *model) version(name string, uid types.UID) *v1.Node {
	node := newNode(name, []string{"A", "B", "C", "D"}[:m.fewest+m.rand.IntN(5-m.fewest)]...)
	if m.rand.IntN(8) == 0 { // or its kubelet counts them
		node = kubeletNode(name)
	}
	if m.rand.IntN(3) == 0 {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, deviceinfo.DeviceTaintsAnnotation, randomTaints(m.rand))
	}
	node.UID = uid
	m.made++
	node.ResourceVersion = fmt.Sprint(m.made)
	return node
}

// publish makes a node known to the informer, and to the plugin perhaps.
func (m *model) publish(node *v1.Node) {
	if err := m.indexer.Update(node); err != nil {
		m.Fatal(err)
	}
	if m.rand.IntN(2) == 0 {
		m.fixture.plugin.nodes.Observe(m.Context(), node)
	}
}

func (m *model) addNode() {
	name := m.name("n")
	node := m.version(name, types.UID(name))
	m.publish(node)
	nodeInfo := framework.NewNodeInfo()
	nodeInfo.SetNode(node)
	m.list = slices.Insert(slices.Clone(m.list), m.rand.IntN(len(m.list)+1), fwk.NodeInfo(nodeInfo))
}

func (m *model) changeInventory() {
	nodeInfo := random(m, m.list)
	node := m.version(nodeInfo.Node().Name, nodeInfo.Node().UID)
	m.publish(node)
	if m.rand.IntN(2) == 0 { // or the snapshot lags behind
		nodeInfo.(*framework.NodeInfo).SetNode(node)
	}
}

// drop takes a pod off a list and off its node. The snapshot restores the node's generation
// perhaps, as it does for an assumed pod that is forgotten.
func (m *model) drop(list *[]*v1.Pod, pod *v1.Pod) {
	*list = slices.DeleteFunc(slices.Clone(*list), func(other *v1.Pod) bool { return other == pod })
	if nodeInfo := m.node(pod.Spec.NodeName); nodeInfo != nil {
		if err := nodeInfo.RemovePod(klog.Background(), pod); err != nil {
			m.Fatal(err)
		}
	}
}

// changes are what can happen between two cycles, and in one.
var changes = map[string]func(*model){
	"a node comes": (*model).addNode,
	"a node goes": func(m *model) {
		if len(m.list) < 3 {
			return
		}
		i := m.rand.IntN(len(m.list))
		node := m.list[i].Node()
		m.list = slices.Delete(slices.Clone(m.list), i, i+1)
		if err := m.indexer.Delete(node); err != nil {
			m.Fatal(err)
		}
		m.fixture.plugin.nodes.Forget(m.Context(), node)
		elsewhere := func(pod *v1.Pod) bool { return pod.Spec.NodeName == node.Name }
		m.assumed, m.bound = slices.DeleteFunc(m.assumed, elsewhere), slices.DeleteFunc(m.bound, elsewhere)
		m.unresolved = slices.DeleteFunc(m.unresolved, elsewhere)
		m.forgotten = slices.DeleteFunc(m.forgotten, elsewhere)
	},
	"an inventory changes": (*model).changeInventory,
	"a node is made again": func(m *model) {
		nodeInfo := random(m, m.list)
		node := m.version(nodeInfo.Node().Name, types.UID(m.name("u")))
		m.publish(node)
		nodeInfo.(*framework.NodeInfo).SetNode(node)
	},
	"a heartbeat": func(m *model) {
		nodeInfo := random(m, m.list)
		current, _, err := m.indexer.GetByKey(nodeInfo.Node().Name)
		if err != nil {
			m.Fatal(err)
		}
		m.made++
		node := current.(*v1.Node).DeepCopy()
		node.ResourceVersion = fmt.Sprint(m.made)
		m.publish(node)
		nodeInfo.(*framework.NodeInfo).SetNode(node)
	},
	"a plain pod comes": func(m *model) {
		nodeInfo := random(m, m.list)
		pod := assumed(newPod(m.name("plain"), 0), nodeInfo.Node().Name)
		nodeInfo.(*framework.NodeInfo).AddPod(pod)
		m.bound = append(m.bound, pod)
	},
	"a pod that others bound comes": func(m *model) {
		nodeInfo, name := random(m, m.list), m.name("theirs")
		nodeName := nodeInfo.Node().Name
		pod := annotated(assumed(newPod(name, 1), nodeName), allocationOf(name, nodeName, random(m, []string{"A", "B",
			"C"})))
		nodeInfo.(*framework.NodeInfo).AddPod(pod)
		m.bound = append(m.bound, pod)
	},
	"a pod is bound": func(m *model) {
		if pod := random(m, m.assumed); pod != nil {
			m.drop(&m.assumed, pod)
			bound := annotated(pod, m.fixture.plugin.nodes.Reserved(pod.Spec.NodeName, pod.UID))
			bound.ResourceVersion += "0"
			m.node(pod.Spec.NodeName).AddPod(bound)
			m.bound = append(m.bound, bound)
		}
	},
	"a binding is refused": func(m *model) {
		if pod := random(m, m.assumed); pod != nil {
			m.assumed = slices.DeleteFunc(m.assumed, func(other *v1.Pod) bool { return other == pod })
			m.fixture.plugin.nodes.Unreserve(pod.Spec.NodeName, pod.UID)
			m.forgotten = append(m.forgotten, pod)
		}
	},
	"the snapshot forgets a pod": func(m *model) {
		if pod := random(m, m.forgotten); pod != nil {
			m.drop(&m.forgotten, pod)
		}
	},
	"a pod of a group is assumed, with a forged allocation and without devices": func(m *model) {
		nodeInfo, name := random(m, m.list).(*framework.NodeInfo), m.name("forger")
		nodeName, generation := nodeInfo.Node().Name, nodeInfo.Generation
		pod := annotated(assumed(newPod(name, 0), nodeName), allocationOf(name, nodeName, random(m, []string{"A", "B",
			"C"})))
		nodeInfo.AddPod(pod)
		nodeInfo.Generation = generation
		m.forgotten = append(m.forgotten, pod)
	},
	"a binding gets no answer": func(m *model) {
		if pod := random(m, m.assumed); pod != nil {
			m.drop(&m.assumed, pod)
			m.fixture.plugin.nodes.Keep(pod.Spec.NodeName, pod.UID)
			m.fixture.plugin.nodes.Unreserve(pod.Spec.NodeName, pod.UID)
			m.unresolved = append(m.unresolved, pod)
		}
	},
	"it did not take effect": func(m *model) {
		if pod := random(m, m.unresolved); pod != nil {
			m.unresolved = slices.DeleteFunc(m.unresolved, func(other *v1.Pod) bool { return other == pod })
			m.fixture.plugin.nodes.Resolve(pod.Spec.NodeName, pod.UID)
		}
	},
	"a pod is deleted": func(m *model) {
		if pod := random(m, m.bound); pod != nil {
			m.drop(&m.bound, pod)
			m.fixture.plugin.nodes.PodDeleted(pod.UID)
		}
	},
	"the device scheduler translates otherwise": func(m *model) {
		if m.rand.IntN(4) == 0 {
			m.plugin.wanted.Add(1)
			m.changeInventory()
		}
	},
}

// answer is what is said of one node: whether it fits, and why not.
func answer(status *fwk.Status) string {
	if status.IsSuccess() {
		return "fits"
	}
	return status.Code().String() + ": " + strings.Join(status.Reasons(), ", ")
}

// run runs the cycle of a pod up to its scores on one of the plugins, and returns what is said of
// each node.
func (m *model) run(p *Plugin, pod *v1.Pod) (state fwk.CycleState, answers map[string]string) {
	state = framework.NewCycleState()
	result, status := p.PreFilter(m.Context(), state, pod, m.list)
	if !status.IsSuccess() {
		m.Fatal(status)
	}
	if p.cycleOf(state).unverified != nil {
		m.unverified++
	}
	statuses := framework.NewDefaultNodeToStatus()
	var feasible []fwk.NodeInfo
	for _, nodeInfo := range m.list {
		name := nodeInfo.Node().Name
		if !result.AllNodes() && !result.NodeNames.Has(name) {
			m.removed++
			continue
		}
		status := p.Filter(m.Context(), state, pod, nodeInfo)
		if status.IsSuccess() {
			feasible = append(feasible, nodeInfo)
		} else {
			statuses.Set(name, status)
		}
	}
	if _, status := p.PostFilter(m.Context(), state, pod, statuses); status.Code() != fwk.Unschedulable {
		m.Fatal(status)
	}
	answers = map[string]string{}
	statuses.ForEachExplicitNode(func(name string, status *fwk.Status) { answers[name] = answer(status) })
	if status := p.PreScore(m.Context(), state, pod, feasible); !status.IsSuccess() {
		m.Fatal(status)
	}
	scores := make(fwk.NodeScoreList, len(feasible))
	if status := p.NormalizeScore(m.Context(), state, pod, scores); !status.IsSuccess() {
		m.Fatal(status)
	}
	for i, nodeInfo := range feasible {
		answers[nodeInfo.Node().Name] = fmt.Sprint("fits with score ", scores[i].Score)
	}
	failure := &framework.FitError{
		Pod:         pod,
		NumAllNodes: len(m.list),
		Diagnosis:   framework.Diagnosis{NodeToStatus: statuses},
	}
	answers["event"] = failure.Error()
	return state, answers
}

// equal fails unless both plugins said the same.
func (m *model) equal(what string, cached, plain any) {
	m.Helper()
	m.compared++
	if diff := cmp.Diff(plain, cached); diff != "" {
		m.Fatalf("%s (-without a cache +with it):\n%s\nafter:\n%s", what, diff, strings.Join(m.history, "\n"))
	}
}

// simulate filters nodes as preemption and nominated pods change them, with clones of the states;
// for a pod of a group in the snapshot itself, with the states themselves.
func (m *model) simulate(pod *v1.Pod, cachedState, plainState fwk.CycleState) {
	own := random(m, m.list).(*framework.NodeInfo)
	nodeInfo := own
	if !inGroup(pod) {
		nodeInfo, cachedState, plainState = own.Snapshot().(*framework.NodeInfo), cachedState.Clone(),
			plainState.Clone()
	}
	var removed []*v1.Pod
	for _, info := range slices.Clone(nodeInfo.Pods) {
		if m.rand.IntN(2) == 0 {
			if err := nodeInfo.RemovePod(klog.Background(), info.GetPod()); err != nil {
				m.Fatal(err)
			}
			removed = append(removed, info.GetPod())
		}
	}
	if m.rand.IntN(3) == 0 && nodeInfo != own {
		name := nodeInfo.Node().Name
		nodeInfo.AddPod(annotated(assumed(newPod("nominated", 1), name), allocationOf("nominated", name, "A")))
		hopeful := newPod("hopeful", 1)
		hopeful.Spec.Tolerations = randomTolerations(m.rand)
		nodeInfo.AddPod(hopeful)
	}
	if m.rand.IntN(2) == 0 { // another pod's cycle begins before this one goes on
		other, state := newPod(m.name("other"), 4), framework.NewCycleState()
		other.Spec.Tolerations = randomTolerations(m.rand)
		if _, status := m.fixture.plugin.PreFilter(m.Context(), state, other, m.list); !status.IsSuccess() {
			m.Fatal(status)
		}
	}
	m.simulated++
	m.equal("a simulation on "+nodeInfo.Node().Name,
		answer(m.fixture.plugin.Filter(m.Context(), cachedState, pod, nodeInfo)),
		answer(m.plain.Filter(m.Context(), plainState, pod, nodeInfo)))
	if nodeInfo == own {
		for _, pod := range removed {
			own.AddPod(pod)
		}
		m.equal("after the simulation on "+nodeInfo.Node().Name,
			answer(m.fixture.plugin.Filter(m.Context(), cachedState, pod, nodeInfo)),
			answer(m.plain.Filter(m.Context(), plainState, pod, nodeInfo)))
	}
}

// cycle runs a pod's cycle on both plugins, and reserves devices for it if it fits.
func (m *model) cycle() {
	pod, again := newPod(m.name("p"), 1+m.rand.Int64N(3)), random(m, m.unresolved)
	pod.Spec.Tolerations = randomTolerations(m.rand)
	if again != nil && m.rand.IntN(3) == 0 { // it is scheduled again, and its own devices do not count
		pod = again.DeepCopy()
		pod.Spec.NodeName = ""
	} else if again = nil; m.rand.IntN(4) == 0 {
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	}
	m.history = append(m.history, "a cycle")
	before, _ := m.fixture.plugin.schedulers.Era()
	state, cached := m.run(m.fixture.plugin, pod)
	if after, _ := m.fixture.plugin.schedulers.Era(); after != before {
		return // a node was taken in the cycle, which has verdicts from before and after
	}
	plainState, plain := m.run(m.plain, pod)
	m.equal("a cycle", cached, plain)
	for range 2 {
		m.simulate(pod, state, plainState)
	}
	if m.rand.IntN(4) == 0 { // in the cycle, whose verdicts may be those before or after
		m.change()
	}
	fits := slices.DeleteFunc(slices.Clone(m.list), func(nodeInfo fwk.NodeInfo) bool {
		return !strings.HasPrefix(cached[nodeInfo.Node().Name], "fits")
	})
	nodeInfo := random(m, fits)
	if nodeInfo == nil || again != nil {
		return
	}
	name := nodeInfo.Node().Name
	pod = assumed(pod, name)
	generation := nodeInfo.GetGeneration()
	if !m.fixture.plugin.Reserve(m.Context(), state, pod, name).IsSuccess() {
		return
	}
	m.history = append(m.history, pod.Name+" gets devices of "+name)
	nodeInfo.(*framework.NodeInfo).AddPod(pod)
	if inGroup(pod) { // for which the snapshot keeps its generation
		nodeInfo.(*framework.NodeInfo).Generation = generation
	}
	m.assumed = append(m.assumed, pod)
}

func (m *model) change() {
	change := random(m, slices.Sorted(maps.Keys(changes)))
	m.history = append(m.history, change)
	changes[change](m)
}

// After any changes in any order, pods get the same verdicts, scores and events with the cache and
// without.
func TestCachedVerdictsAreThoseWithoutACache(t *testing.T) {
	var compared, removed, unverified, simulated int
	for seed := range uint64(60) {
		m := newModel(t, seed)
		for range 60 {
			for range m.rand.IntN(3) {
				m.change()
			}
			m.cycle()
		}
		compared, removed = compared+m.compared, removed+m.removed
		unverified, simulated = unverified+m.unverified, simulated+m.simulated
	}
	if removed == 0 || unverified == 0 || simulated == 0 {
		t.Errorf("of %d comparisons, %d had nodes removed, %d unverified ones, %d were simulations: nothing is tested",
			compared, removed, unverified, simulated)
	}
}
