// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// byNode is the index of pods by the node that they are bound to.
const byNode = Name + "/node"

// indexByNode adds the index to the pod informer. It costs a map entry for each bound pod, and
// saves a walk over all pods for each device pod that is deleted.
func indexByNode(informer cache.SharedIndexInformer) error {
	return informer.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil, nil
		}
		return []string{pod.Spec.NodeName}, nil
	}})
}

// PodsOn returns the pods that the informer has as bound to the node.
func (s *Shared) PodsOn(nodeName string) ([]*v1.Pod, error) {
	objects, err := s.pods.ByIndex(byNode, nodeName)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, len(objects))
	for i, object := range objects {
		pods[i] = object.(*v1.Pod)
	}
	return pods, nil
}

// cachedHints say which pods fit one state of one node. Pods with equal requests share an answer:
// most pending pods come from few templates.
type cachedHints struct {
	view *nodestate.View
	era  uint64   // of the device schedulers
	fits sync.Map // of bool, by dispatch.RequestKey
}

// mayFit reports whether the pod may fit the node as it is now. It errs toward true: where plugins
// look at more than the node, and while one gives no answer.
//
// The scheduling queue calls it with its lock held, for each pending pod and each event. So it
// looks a node up once for all pods, and calls only plugins whose answers are cached.
func (s *Shared) mayFit(ctx context.Context, pod *v1.Pod, nodeName string) bool {
	if !s.schedulers.Predictable() {
		return true
	}
	node, err := s.nodeLister.Get(nodeName)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	pods, err := s.PodsOn(nodeName)
	if err != nil {
		return true
	}
	view, err := s.nodes.View(ctx, node, pods)
	if err != nil {
		return errors.Is(err, dispatch.ErrNoAnswer) // else nothing on it can be scheduled
	}
	request, err := s.nodes.Request(pod)
	switch {
	case err != nil: // until the pod itself changes
		return false
	case request == nil: // no device pod any more
		return true
	}
	era, certain := s.schedulers.Era()
	if !certain {
		return true
	}
	f := s.hints.Load()
	if f == nil || f.view != view || f.era != era {
		f = &cachedHints{view: view, era: era}
		s.hints.Store(f)
	}
	if fits, known := f.fits.Load(request.Key()); known {
		return fits.(bool)
	}
	verdict, err := s.schedulers.Fit(ctx, view.Devices, request)
	if err != nil {
		return true
	}
	f.fits.Store(request.Key(), verdict.Fits)
	return verdict.Fits
}
