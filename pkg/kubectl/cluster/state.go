// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
)

// State is the nodes and pods of a watch as they are now. The zero value has none. It is not safe
// for concurrent use.
type State struct {
	nodes map[string]*corev1.Node
	pods  map[apitypes.UID]*corev1.Pod
	on    map[string]map[apitypes.UID]*corev1.Pod // by node; "" for pods that wait
}

// Apply takes changes over. It returns the names of the nodes that look different now, or whose
// pods do, sorted; and the UIDs of the pods, sorted.
func (s *State) Apply(changes []Change) (nodes []string, pods []apitypes.UID) {
	if s.nodes == nil {
		s.nodes, s.pods = map[string]*corev1.Node{}, map[apitypes.UID]*corev1.Pod{}
		s.on = map[string]map[apitypes.UID]*corev1.Pod{}
	}
	names, uids := map[string]bool{}, map[apitypes.UID]bool{}
	for _, c := range changes {
		if c.Node != nil {
			names[c.Node.Name] = true
			if s.nodes[c.Node.Name] = c.Node; c.Gone {
				delete(s.nodes, c.Node.Name)
			}
			continue
		}
		uids[c.Pod.UID] = true
		if last := s.pods[c.Pod.UID]; last != nil {
			s.remove(last)
			names[last.Spec.NodeName] = true
		}
		if names[c.Pod.Spec.NodeName] = true; !c.Gone {
			s.add(c.Pod)
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(uids))
}

func (s *State) add(pod *corev1.Pod) {
	s.pods[pod.UID] = pod
	if s.on[pod.Spec.NodeName] == nil {
		s.on[pod.Spec.NodeName] = map[apitypes.UID]*corev1.Pod{}
	}
	s.on[pod.Spec.NodeName][pod.UID] = pod
}

func (s *State) remove(pod *corev1.Pod) {
	delete(s.pods, pod.UID)
	if delete(s.on[pod.Spec.NodeName], pod.UID); len(s.on[pod.Spec.NodeName]) == 0 {
		delete(s.on, pod.Spec.NodeName)
	}
}

// Node returns a node, or nil, and the pods that are bound to it, in the order of their UIDs.
func (s *State) Node(name string) (*corev1.Node, []*corev1.Pod) {
	podsOnNode := s.on[name]
	pods := make([]*corev1.Pod, 0, len(podsOnNode))
	for _, uid := range slices.Sorted(maps.Keys(podsOnNode)) {
		pods = append(pods, podsOnNode[uid])
	}
	return s.nodes[name], pods
}

// Pod returns a pod, or nil.
func (s *State) Pod(uid apitypes.UID) *corev1.Pod { return s.pods[uid] }
