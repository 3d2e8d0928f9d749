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

// world is a copy of the cluster's state, which a question may change.
type world struct {
	engine   *Engine
	budget   *budget
	states   *nodestate.Copy
	pods     []*v1.Pod               // that have a node
	snapshot *internalcache.Snapshot // of states and pods; nil when these have changed
	mutable  bool                    // the snapshot

	// ofManifest reports whether a pod that runs was made from the manifest that the question is
	// about; nil without one.
	ofManifest func(pod *v1.Pod) bool
}

// world returns the state at this moment.
func (e *Engine) world(b *budget) (*world, error) {
	w := &world{engine: e, budget: b, states: e.shared.Nodes().Copy()}
	pods, err := e.pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	gone := maps.Clone(w.states.ReservedOn)
	for _, pod := range pods {
		delete(gone, pod.UID)
		reserved := w.states.ReservedOn[pod.UID]
		switch {
		case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
			continue
		case pod.Spec.NodeName == "" && reserved == "":
			continue
		case pod.Spec.NodeName == "":
			pod = onNode(pod, reserved)
		}
		w.pods = append(w.pods, pod)
	}
	for uid := range gone { // deleted since the states were copied
		w.states.Remove(uid)
	}
	return w, nil
}

// onNode returns the pod as the scheduler has it between its choice and its binding.
func onNode(pod *v1.Pod, node string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	return pod
}

// copy returns a world of its own in the same state.
func (w *world) copy() *world {
	return &world{
		engine: w.engine, budget: w.budget, states: w.states.Copy(), pods: slices.Clone(w.pods),
		ofManifest: w.ofManifest,
	}
}

// enter makes the frameworks answer for this world.
func (w *world) enter() {
	if w.snapshot == nil {
		nodes := make([]*v1.Node, 0, len(w.states.Nodes))
		for _, node := range w.states.Nodes {
			nodes = append(nodes, node)
		}
		slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
		pods := make([]*v1.Pod, 0, len(w.pods))
		for _, pod := range w.pods {
			if w.states.Nodes[pod.Spec.NodeName] != nil {
				pods = append(pods, pod)
			}
		}
		w.snapshot, w.mutable = internalcache.NewSnapshot(pods, nodes), false
	}
	w.engine.snapshot.now.Store(w.snapshot)
	for _, profile := range w.engine.serving {
		if profile.devices != nil {
			profile.devices.Answer(w.states)
		}
	}
}

// nodes returns the nodes of the snapshot, by name.
func (w *world) nodes() ([]fwk.NodeInfo, error) {
	listed, err := w.snapshot.NodeInfos().List()
	nodes := slices.Clone(listed)
	slices.SortFunc(nodes, func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	return nodes, err
}

// assume puts a pod on a node of the snapshot.
func (w *world) assume(pod *v1.Pod, node string) error {
	assumed := onNode(pod, node)
	w.pods = append(w.pods, assumed)
	if !w.mutable {
		if err := w.snapshot.StartMutations(); err != nil {
			return err
		}
		w.mutable = true
	}
	info, err := framework.NewPodInfo(assumed)
	if err != nil {
		return err
	}
	return w.snapshot.AddPod(info, node)
}

// end takes pods off their nodes.
func (w *world) end(ended ...*v1.Pod) {
	for _, pod := range ended {
		w.pods = slices.DeleteFunc(w.pods, func(other *v1.Pod) bool { return other.UID == pod.UID })
		w.states.Remove(pod.UID)
	}
	w.snapshot = nil
}

// addLike adds a node like another one, with what its DaemonSets and its static pods would take of
// it besides devices. It returns the node's name.
func (w *world) addLike(ctx context.Context, like string) (string, error) {
	var own []*v1.Pod
	for _, pod := range w.pods {
		if pod.Spec.NodeName == like {
			own = append(own, pod)
		}
	}
	name, pods, err := w.addNode(ctx, like, own)
	w.pods = append(w.pods, pods...)
	w.snapshot = nil
	return name, err
}

// addNode adds a node like another one to the states alone, and returns its name and its pods. own
// are those of the other one.
func (w *world) addNode(
	ctx context.Context, like string, own []*v1.Pod,
) (name string, pods []*v1.Pod, err error) {
	for i := 1; name == "" || w.states.Nodes[name] != nil; i++ {
		name = fmt.Sprintf("like-%s-%d", like, i)
	}
	if err := w.states.AddLike(ctx, name, like); err != nil {
		return "", nil, err
	}
	for _, pod := range own {
		if everywhere(pod) {
			same := onNode(pod, name)
			same.UID, same.ResourceVersion = types.UID(w.engine.uid()), ""
			delete(same.Annotations, deviceinfo.Annotation)
			pods = append(pods, same)
		}
	}
	return name, pods, nil
}

// everywhere reports whether a pod is one that each node has.
func everywhere(pod *v1.Pod) bool {
	if _, static := pod.Annotations[v1.MirrorPodAnnotationKey]; static {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// change makes one change.
func (w *world) change(ctx context.Context, change schedulerapi.Change) error {
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
		err = w.without(*change.Without)
	case change.WithNodeLike != "":
		_, err = w.addLike(ctx, change.WithNodeLike)
	default:
		node, device, ofDevice := strings.Cut(change.Cordon, "/")
		if ofDevice {
			err = w.states.CordonDevice(ctx, node, device)
		} else {
			err = w.states.Cordon(node)
		}
		w.snapshot = nil
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (w *world) without(name schedulerapi.PodName) error {
	for _, pod := range w.pods {
		if pod.Namespace == name.Namespace && pod.Name == name.Name {
			w.end(pod)
			return nil
		}
	}
	return fmt.Errorf("there is no pod %q that runs or is about to: nothing is free without it", name)
}

// waiting returns a pod that exists.
func (e *Engine) waiting(name schedulerapi.PodName) (*v1.Pod, error) {
	pod, err := e.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name.String())
	}
	return pod, err
}
