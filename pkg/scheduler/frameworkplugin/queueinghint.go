// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// nodeIndex is the index of pods by the node that they are bound to.
const nodeIndex = Name + "/node"

// indexByNode adds the index to the pod informer. It costs a map entry for each bound pod, and
// saves a walk over all pods for each device pod that is deleted.
func indexByNode(informer cache.SharedIndexInformer) error {
	return informer.AddIndexers(cache.Indexers{nodeIndex: func(obj any) ([]string, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil, nil
		}
		return []string{pod.Spec.NodeName}, nil
	}})
}

// PodsOn returns the pods that the informer has as bound to the node.
func (s *Shared) PodsOn(nodeName string) ([]*v1.Pod, error) {
	objects, err := s.pods.ByIndex(nodeIndex, nodeName)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, len(objects))
	for i, object := range objects {
		pods[i] = object.(*v1.Pod)
	}
	return pods, nil
}

// mayFit reports whether the pod may fit the node as it is now, or if others are evicted for it. It
// errs toward true: where plugins look at more than the node, and where that is not known at once.
//
// The scheduling queue calls it with its lock held, for each pending pod and each event. So it
// makes no search and calls no plugin, and reads little that is not read already.
func (s *Shared) mayFit(pod *v1.Pod, nodeName string) bool {
	node, err := s.nodeLister.Get(nodeName)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	request, known, err := s.nodes.Requests.ReadQuickly(pod)
	switch {
	case err != nil: // until the pod itself changes
		return false
	case !known || request == nil: // or no device pod any more
		return true
	}
	pods, err := s.PodsOn(nodeName)
	if err != nil {
		return true
	}
	devices, err := s.nodes.Estimate(node, pods, pod)
	switch {
	case err != nil: // nothing on the node can be scheduled
		return errors.Is(err, pluginhost.ErrNoAnswer)
	case devices == nil:
		return true
	}
	if !s.hasAllNames(node, devices, pod) {
		return false
	}
	return s.schedulers.MayFit(devices, request) || s.mayPreempt(pod, request, node, pods)
}

// mayPreempt reports whether the pod may fit if pods of lower priority are evicted.
func (s *Shared) mayPreempt(pod *v1.Pod, request *request.Request, node *v1.Node, pods []*v1.Pod) bool {
	if ptr.Deref(pod.Spec.PreemptionPolicy, v1.PreemptLowerPriority) == v1.PreemptNever {
		return false
	}
	goes := func(other *v1.Pod) bool {
		return corev1.PodPriority(other) < corev1.PodPriority(pod) && s.nodes.Requests.MayHold(other)
	}
	if !slices.ContainsFunc(pods, goes) {
		return false
	}
	devices, err := s.nodes.Estimate(node, slices.DeleteFunc(slices.Clone(pods), goes), pod)
	return err == nil && (devices == nil || s.schedulers.MayFit(devices, request))
}

// hasAllNames reports whether the node may have the extended resources that the pod counts, from
// whomever. By dynamic resource allocation it may have them without counting them, and no node has
// to count those of [names.Resources].
func (s *Shared) hasAllNames(node *v1.Node, devices *allocation.Node, pod *v1.Pod) bool {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name, quantity := range containers[i].Resources.Requests {
				_, counted := node.Status.Allocatable[name]
				if extended := types.ResourceName(name); !counted && !quantity.IsZero() &&
					resource.IsExtendedResource(extended) && !devices.Counts(extended) && !s.hasClass(name) &&
					!slices.Contains(names.Resources(), string(name)) {
					return false
				}
			}
		}
	}
	return true
}

// hasClass reports whether a DeviceClass serves the extended resource.
func (s *Shared) hasClass(name v1.ResourceName) bool {
	return s.dra != nil && s.dra.DeviceClassResolver().GetDeviceClass(name) != nil
}
