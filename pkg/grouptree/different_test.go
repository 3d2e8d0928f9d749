// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// groupsGiven returns the groups of the cards that a pod with one container gets on a node with
// groups of so many free GPUs, in the order of its requests, or why it gets none.
func groupsGiven(t *testing.T, groups []int, requests ...string) string {
	t.Helper()
	node := types.NodeInfo{Allocatable: types.ResourceList{}}
	for g, size := range groups {
		for i := range size {
			node.Allocatable[types.ResourceName(fmt.Sprintf("resource/group/grp/%d/gpu/%d-%d/cards", g, g, i))] = 1
		}
	}
	pod := types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {DevRequests: types.ResourceList{}}}}
	for _, request := range requests {
		pod.RunningContainers["main"].DevRequests[types.ResourceName("resource/group/"+request)] = 1
	}
	tree, req := mustTree(t, &node), mustRequest(t, &pod, []Container{{Name: "main"}})
	used := make([]int64, tree.Len())
	placement := NewPlacer(0).Place(tree, used, req)
	if !placement.Fits {
		return Explain(tree, used, req, placement).String()
	}
	req.Apply(tree, placement, &pod)
	var given []string
	for _, request := range requests {
		from := pod.RunningContainers["main"].AllocateFrom[types.ResourceName("resource/group/"+request)]
		given = append(given, strings.Split(string(from), "/")[3])
	}
	return strings.Join(given, " ")
}

func TestDifferentPlaceholdersMayShareAGroupUnlessTheySayOtherwise(t *testing.T) {
	pairs := []string{"grp/A/gpu/a/cards", "grp/A/gpu/b/cards", "grp/B/gpu/c/cards", "grp/B/gpu/d/cards"}
	if got := groupsGiven(t, []int{4}, pairs...); got != "0 0 0 0" {
		t.Errorf("two pairs in one group of four: %s", got)
	}
	different := []string{"grp/!A/gpu/a/cards", "grp/!A/gpu/b/cards", "grp/!B/gpu/c/cards", "grp/!B/gpu/d/cards"}
	if got := groupsGiven(t, []int{4, 4}, different...); got != "0 0 1 1" && got != "1 1 0 0" {
		t.Errorf("two pairs of different groups: %s", got)
	}
	if got := groupsGiven(t, []int{4, 1}, different...); !strings.Contains(got, "have fewer than 2 grp") {
		t.Errorf("two pairs of different groups, of which there is one: %s", got)
	}
	// One that says nothing may share a group with one that does.
	if got := groupsGiven(t, []int{4}, "grp/!A/gpu/a/cards", "grp/B/gpu/b/cards"); got != "0 0" {
		t.Errorf("a group of its own and any: %s", got)
	}
	// Devices may differ, too, in any groups.
	if got := groupsGiven(t, []int{1, 1}, "grp/A/gpu/!a/cards", "grp/B/gpu/!b/cards"); got != "0 1" && got != "1 0" {
		t.Errorf("two devices: %s", got)
	}
}
