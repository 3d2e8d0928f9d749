// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// simulation is a copy of the cluster's state, which a question may change.
type simulation struct {
	engine   *Engine
	budget   *budget
	states   *nodestate.Copy
	pods     []*v1.Pod               // those with a node
	snapshot *internalcache.Snapshot // of states and pods; nil after a change of these
	mutable  bool                    // whether the snapshot can be changed

	// manifest is the manifest of the question; nil without one.
	manifest *schedulerapi.FitRequest
}

// newSimulation returns a copy of the current state.
func (e *Engine) newSimulation(b *budget) (*simulation, error) {
	sim := &simulation{engine: e, budget: b, states: e.shared.Nodes().Copy()}
	pods, err := e.pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	gone := maps.Clone(sim.states.ReservedOn)
	for _, pod := range pods {
		delete(gone, pod.UID)
		reserved := sim.states.ReservedOn[pod.UID]
		switch {
		case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
			continue
		case pod.Spec.NodeName == "" && reserved == "":
			continue
		case pod.Spec.NodeName == "":
			pod = onNode(pod, reserved)
		}
		sim.pods = append(sim.pods, pod)
	}
	for uid := range gone { // deleted since the states were copied
		sim.states.Remove(uid)
	}
	return sim, nil
}

// onNode returns the pod as the scheduler sees it between its choice and its binding.
func onNode(pod *v1.Pod, node string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	return pod
}

// copy returns an independent simulation in the same state.
func (sim *simulation) copy() *simulation {
	return &simulation{
		engine: sim.engine, budget: sim.budget, states: sim.states.Copy(), pods: slices.Clone(sim.pods),
		manifest: sim.manifest,
	}
}

// enter makes the frameworks answer for this simulation.
func (sim *simulation) enter() {
	if sim.snapshot == nil {
		nodes := make([]*v1.Node, 0, len(sim.states.Nodes))
		for _, node := range sim.states.Nodes {
			nodes = append(nodes, node)
		}
		slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
		pods := make([]*v1.Pod, 0, len(sim.pods))
		for _, pod := range sim.pods {
			if sim.states.Nodes[pod.Spec.NodeName] != nil {
				pods = append(pods, pod)
			}
		}
		sim.snapshot, sim.mutable = internalcache.NewSnapshot(pods, nodes), false
	}
	sim.engine.snapshot.now.Store(sim.snapshot)
	for _, profile := range sim.engine.serving {
		if profile.devices != nil {
			profile.devices.Answer(sim.states)
		}
	}
}

// nodes returns the nodes of the snapshot, by name.
func (sim *simulation) nodes() ([]fwk.NodeInfo, error) {
	listed, err := sim.snapshot.NodeInfos().List()
	nodes := slices.Clone(listed)
	slices.SortFunc(nodes, func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	return nodes, err
}

// assume puts a pod on a node of the snapshot.
func (sim *simulation) assume(pod *v1.Pod, node string) error {
	assumed := onNode(pod, node)
	sim.pods = append(sim.pods, assumed)
	if !sim.mutable {
		if err := sim.snapshot.StartMutations(); err != nil {
			return err
		}
		sim.mutable = true
	}
	info, err := framework.NewPodInfo(assumed)
	if err != nil {
		return err
	}
	return sim.snapshot.AddPod(info, node)
}

// end takes pods off their nodes.
func (sim *simulation) end(ended ...*v1.Pod) {
	for _, pod := range ended {
		sim.pods = slices.DeleteFunc(sim.pods, func(other *v1.Pod) bool { return other.UID == pod.UID })
		sim.states.Remove(pod.UID)
	}
	sim.snapshot = nil
}

// addLike adds a node like another one. Pods of DaemonSets and static pods take their resources on
// it, but no devices. It returns the node's name.
func (sim *simulation) addLike(ctx context.Context, like string) (string, error) {
	var own []*v1.Pod
	for _, pod := range sim.pods {
		if pod.Spec.NodeName == like {
			own = append(own, pod)
		}
	}
	name, pods, err := sim.addNode(ctx, like, own)
	sim.pods = append(sim.pods, pods...)
	sim.snapshot = nil
	return name, err
}

// addNode adds a node like another one to the states only, and returns its name and its pods. own
// are the pods of the other node.
func (sim *simulation) addNode(
	ctx context.Context, like string, own []*v1.Pod,
) (name string, pods []*v1.Pod, err error) {
	for i := 1; name == "" || sim.states.Nodes[name] != nil; i++ {
		name = fmt.Sprintf("like-%s-%d", like, i)
	}
	if err := sim.states.AddLike(ctx, name, like); err != nil {
		return "", nil, err
	}
	for _, pod := range own {
		if isOnEachNode(pod) {
			same := onNode(pod, name)
			same.UID, same.ResourceVersion = types.UID(sim.engine.uid()), ""
			delete(same.Annotations, deviceinfo.Annotation)
			pods = append(pods, same)
		}
	}
	return name, pods, nil
}

// isOnEachNode reports whether each node has a pod like this one.
func isOnEachNode(pod *v1.Pod) bool {
	if _, static := pod.Annotations[v1.MirrorPodAnnotationKey]; static {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// change makes one change.
func (sim *simulation) change(ctx context.Context, change schedulerapi.Change) error {
	set := 0
	for _, is := range []bool{change.Without != nil, change.WithNodeLike != "", change.Cordon != ""} {
		if is {
			set++
		}
	}
	var err error
	switch {
	case set != 1:
		err = fmt.Errorf("a change is one of without, withNodeLike and cordon; this one has %d of them", set)
	case change.Without != nil:
		err = sim.endPod(*change.Without)
	case change.WithNodeLike != "":
		_, err = sim.addLike(ctx, change.WithNodeLike)
	default:
		node, device, ofDevice := strings.Cut(change.Cordon, "/")
		if ofDevice {
			err = sim.states.CordonDevice(ctx, node, device)
		} else {
			err = sim.states.Cordon(node)
		}
		sim.snapshot = nil
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (sim *simulation) endPod(name schedulerapi.PodName) error {
	for _, pod := range sim.pods {
		if pod.Namespace == name.Namespace && pod.Name == name.Name {
			sim.end(pod)
			return nil
		}
	}
	return fmt.Errorf("there is no pod %q that runs or is about to: ending it frees nothing", name)
}

// waiting returns a pod that exists.
func (e *Engine) waiting(name schedulerapi.PodName) (*v1.Pod, error) {
	pod, err := e.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name.String())
	}
	return pod, err
}
