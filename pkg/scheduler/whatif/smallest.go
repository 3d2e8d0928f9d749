// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// proofTimeout is how much longer than its time a question may take to prove its result.
const proofTimeout = 3 * time.Second

// smallest searches for the smallest change of each kind that makes a pod fit. Each kind gets an
// equal part of the remaining time.
func (c *cycle) smallest(ctx context.Context) (*schedulerapi.Smallest, error) {
	found := &schedulerapi.Smallest{Complete: true}
	b := c.simulation.budget
	last := b.deadline
	kinds := []func(context.Context, *schedulerapi.Smallest) error{c.relax}
	if c.rejected == nil {
		kinds = append(kinds, c.oneNodeMore, c.fewestToEnd)
	}
	for i, kind := range kinds {
		b.deadline = time.Now().Add(time.Until(last) / time.Duration(len(kinds)-i))
		err := kind(ctx, found)
		b.deadline = last
		if errors.Is(err, errOver) {
			found.Complete = false
		} else if err != nil {
			return nil, err
		}
	}
	found.Steps = b.steps
	return found, nil
}

// oneNodeMore tries one more node like each existing node, those with the fewest devices first.
func (c *cycle) oneNodeMore(ctx context.Context, found *schedulerapi.Smallest) error {
	larger := c.simulation.copy()
	base, err := larger.cycle(ctx, c.pod)
	if err != nil {
		return err
	}
	nodes, err := larger.nodes()
	if err != nil {
		return err
	}
	slices.SortStableFunc(nodes, func(a, b fwk.NodeInfo) int {
		return cmp.Compare(len(a.Node().Annotations[deviceinfo.Annotation]),
			len(b.Node().Annotations[deviceinfo.Annotation]))
	})
	for _, like := range nodes {
		var own []*v1.Pod
		for _, info := range like.GetPods() {
			own = append(own, info.GetPod())
		}
		name, pods, err := larger.addNode(ctx, like.Node().Name, own)
		if err != nil {
			return err
		}
		added := framework.NewNodeInfo(pods...)
		added.SetNode(larger.states.Nodes[name])
		if fits, err := base.fitsWithout(ctx, added, nil); err != nil {
			return err
		} else if !fits {
			continue
		}
		proof := c.simulation.copy()
		if _, err := proof.addLike(ctx, like.Node().Name); err != nil {
			return err
		}
		placed, err := proof.proves(ctx, c.pod)
		if err != nil {
			return err
		}
		if placed != nil {
			found.Add = &schedulerapi.AddNode{Like: like.Node().Name, Placement: *placed}
			return nil
		}
	}
	return nil
}

// proves returns where the pod goes in a changed simulation, or nil.
func (sim *simulation) proves(ctx context.Context, pod *v1.Pod) (*schedulerapi.Placement, error) {
	c, err := sim.cycle(ctx, pod)
	if err != nil || len(c.fits) == 0 {
		return nil, err
	}
	return c.place(ctx)
}

// eviction is a set of pods of one node.
type eviction struct {
	node fwk.NodeInfo
	pods []*v1.Pod // by falling priority
}

// cheaper orders evictions: fewer pods, then a lower highest priority, a lower second highest and
// so on, then names. Nil is the most expensive.
func (e *eviction) cheaper(other *eviction) bool {
	if other == nil {
		return true
	}
	order := cmp.Compare(len(e.pods), len(other.pods))
	for i := 0; order == 0 && i < len(e.pods); i++ {
		order = cmp.Compare(corev1.PodPriority(e.pods[i]), corev1.PodPriority(other.pods[i]))
	}
	order = cmp.Or(order, cmp.Compare(e.node.Node().Name, other.node.Node().Name))
	for i := 0; order == 0 && i < len(e.pods); i++ {
		order = byName(e.pods[i], other.pods[i])
	}
	return order < 0
}

func byName(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// byPriority orders pods, those of the highest priority first.
func byPriority(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(corev1.PodPriority(b), corev1.PodPriority(a)), byName(a, b))
}

// fewestToEnd searches for the fewest pods to end. First it ends on each node all pods that may
// end, and restores those that the pod does not need to end, as preemption does: this set is small
// but not always the smallest. Then it tries all smaller and cheaper sets, by their size.
func (c *cycle) fewestToEnd(ctx context.Context, found *schedulerapi.Smallest) error {
	search := &fewest{cycle: c}
	err := search.run(ctx)
	if err != nil && !errors.Is(err, errOver) {
		return err
	}
	if search.best == nil {
		return err
	}
	// Prove the result even when the time is over.
	late := *c.simulation.budget
	late.deadline, late.steps = time.Now().Add(proofTimeout), 0
	proof := c.simulation.copy()
	proof.budget = &late
	proof.end(search.best.pods...)
	placed, proofErr := proof.proves(ctx, c.pod)
	if proofErr != nil || placed == nil {
		return errors.Join(err, proofErr, errOver) // the proof failed
	}
	found.End = &schedulerapi.EndPods{Placement: *placed}
	for _, pod := range search.best.pods {
		found.End.Pods = append(found.End.Pods, schedulerapi.EndedPod{
			PodName:  schedulerapi.PodName{Namespace: pod.Namespace, Name: pod.Name},
			Priority: corev1.PodPriority(pod),
		})
	}
	return err
}

// fewest is the search for the fewest pods to end.
type fewest struct {
	*cycle
	best  *eviction
	nodes []candidate
}

// candidate is a node on which the pod fits when all these pods end.
type candidate struct {
	node fwk.NodeInfo
	pods []*v1.Pod // by falling priority
}

func (f *fewest) run(ctx context.Context) error {
	fitsWithoutDevices, err := f.withoutDevices(ctx)
	if err != nil {
		return err
	}
	f.simulation.enter()
	for _, m := range f.misfits {
		if err := f.consider(ctx, m.node, fitsWithoutDevices[m.node.Node().Name]); err != nil {
			return err
		}
	}
	for size := 1; f.best != nil && size <= len(f.best.pods); size++ {
		for _, candidate := range f.nodes {
			if err := f.try(ctx, candidate, size, 0, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// withoutDevices returns the nodes on which the pod would fit now if it requested no devices: on
// these, only pods that hold devices matter.
func (f *fewest) withoutDevices(ctx context.Context) (map[string]bool, error) {
	plain := f.pod.DeepCopy()
	plain.UID, plain.ResourceVersion = types.UID(f.simulation.engine.uid()), ""
	delete(plain.Annotations, deviceinfo.Annotation)
	for _, list := range [][]v1.Container{plain.Spec.InitContainers, plain.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if f.simulation.states.Serves(sdk.ResourceName(name)) {
					delete(list[i].Resources.Requests, name)
					delete(list[i].Resources.Limits, name)
				}
			}
		}
	}
	c, err := f.simulation.cycle(ctx, plain)
	if err != nil {
		return nil, err
	}
	fits := map[string]bool{}
	for _, node := range c.fits {
		fits[node.Node().Name] = true
	}
	return fits, nil
}

// mayEnd reports whether ending a pod frees what it has, for the cycle's pod to use: the pods of
// the same manifest or controller do not end for each other.
func (c *cycle) mayEnd(pod *v1.Pod) bool {
	return !isOnEachNode(pod) && corev1.PodPriority(pod) < scheduling.SystemCriticalPriority &&
		!madeUp(pod) && !sameController(pod, c.pod) &&
		(c.simulation.manifest == nil || !ofManifest(pod, c.simulation.manifest))
}

// sameController reports whether two pods have one controller.
func sameController(a, b *v1.Pod) bool {
	owner := metav1.GetControllerOf(a)
	return owner != nil && metav1.IsControlledBy(b, &metav1.ObjectMeta{UID: owner.UID})
}

// consider notes a node on which the pod fits when pods end, with a first set of such pods.
func (f *fewest) consider(ctx context.Context, node fwk.NodeInfo, holdersOnly bool) error {
	var pods []*v1.Pod
	for _, info := range node.GetPods() {
		if pod := info.GetPod(); f.mayEnd(pod) && (!holdersOnly || f.simulation.states.Requests.MayHold(pod)) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, byPriority)
	if fits, err := f.fitsWithout(ctx, node, pods); err != nil || !fits {
		return err
	}
	f.nodes = append(f.nodes, candidate{node, pods})
	ended := slices.Clone(pods)
	for _, pod := range pods {
		i := slices.Index(ended, pod)
		fewer := slices.Delete(slices.Clone(ended), i, i+1)
		fits, err := f.fitsWithout(ctx, node, fewer)
		if err != nil {
			return err
		}
		if fits {
			ended = fewer
		}
	}
	if set := (&eviction{node, ended}); set.cheaper(f.best) {
		f.best = set
	}
	return nil
}

// try tries all sets of this size of a node's pods that begin with begun and are cheaper than the
// best. Pods of low priority come first.
func (f *fewest) try(ctx context.Context, target candidate, size, start int, begun []*v1.Pod) error {
	if len(begun) == size {
		set := &eviction{target.node, slices.Clone(begun)}
		slices.SortFunc(set.pods, byPriority)
		if !set.cheaper(f.best) {
			return nil
		}
		fits, err := f.fitsWithout(ctx, target.node, set.pods)
		if err == nil && fits {
			f.best = set
		}
		return err
	}
	for i := start; i <= len(target.pods)-(size-len(begun)); i++ {
		pod := target.pods[len(target.pods)-1-i]
		if err := f.try(ctx, target, size, i+1, append(begun, pod)); err != nil {
			return err
		}
	}
	return nil
}
