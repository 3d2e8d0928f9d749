// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// FuzzPlacement compiles random names and quantities, places the valid ones, and checks the
// placement. Each line of the texts is a resource; the quantities come from its bytes.
func FuzzPlacement(f *testing.F) {
	f.Add("resource/group/gpu/a/cards\nresource/group/gpu/a/memory", "resource/group/gpu/x/cards", int64(1), int64(1),
		int64(0), int32(0))
	f.Add("resource/group/grp0/0/gpu/a/cards\nresource/group/grp0/0/gpu/b/cards",
		"resource/group/grp0/0/gpu/x/cards\nresource/group/grp0/0/gpu/y/cards", int64(1), int64(1), int64(1), int32(1))
	f.Add("resource/group/gpu/a/enumType", "resource/group/gpu/x/enumType", int64(-1), int64(1<<62), int64(1<<62),
		int32(2))
	f.Add("resource/group", "resource/group/", int64(9223372036854775807), int64(9223372036854775807),
		int64(9223372036854775807), int32(-1))
	f.Add("resource/group//a/cards\nresource/group/gpu/a", "resource/group/gpu/\x00/cards\nresource/group/x", int64(0),
		int64(0), int64(-5), int32(3))
	f.Fuzz(func(t *testing.T, has, requests string, allocatable, quantity, used int64, scorer int32) {
		if strings.Count(has, "\n")+strings.Count(requests, "\n") > 12 {
			return
		}
		s := scenario{
			node: types.NodeInfo{
				Allocatable: types.ResourceList{},
				Used:        types.ResourceList{},
				Scorer:      types.ResourceScorer{},
			},
		}
		for i, name := range strings.Split(has, "\n") {
			name := types.ResourceName(name)
			s.node.Allocatable[name], s.node.Used[name] = allocatable>>i, used>>(2*i)
			if i == 0 {
				s.node.Scorer[name] = scorer
			}
		}
		info := types.ContainerInfo{DevRequests: types.ResourceList{}}
		for i, name := range strings.Split(requests, "\n") {
			info.DevRequests[types.ResourceName(name)] = quantity >> i
		}
		s.pod.RunningContainers = map[string]types.ContainerInfo{"main": info, "web": info}
		s.pod.InitContainers = map[string]types.ContainerInfo{"first": info}
		tree, err := CompileDeviceTree(s.node.Allocatable, s.node.Scorer)
		if err != nil {
			return
		}
		req, err := CompileRequest(&s.pod, nil)
		if err != nil {
			return
		}
		vector := tree.Dense(s.node.Used)
		got := NewPlacer(200).Place(tree, vector, req)
		if !got.Fits {
			if reason := Explain(tree, vector, req, got).String(); reason == "" {
				t.Error("no reason")
			}
			return
		}
		for i, r := range got.Assigned {
			if tree.mode[r] != enum && req.items[i].quantity > tree.Allocatable(int(r))-vector[r] {
				t.Errorf("%s gives %d of %d, %d in use",
					tree.Name(int(r)), req.items[i].quantity, tree.Allocatable(int(r)), vector[r])
			}
		}
		pod := s.pod
		req.Apply(tree, got, &pod)
		held := Holdings(&pod, nil)
		taken := append([]int64(nil), vector...)
		tree.Take(taken, held)
		for i := range taken {
			if taken[i] != vector[i] && taken[i] > tree.Allocatable(i) {
				t.Errorf("%s is over-committed: %d of %d", tree.Name(i), taken[i], tree.Allocatable(i))
			}
		}
	})
}
