// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Filters look at a node while bindings fail, events come in, and the node goes and comes back. In
// the end nothing is left of it all.
func TestEverythingMayHappenAtOnce(t *testing.T) {
	f := newFixture(t)
	var versions []*v1.Node
	for i := range 20 {
		versions = append(versions, f.node("n", "n-1", "A", fmt.Sprint("B", i%2)))
	}
	const pods = 4
	var all []*v1.Pod
	for i := range pods {
		all = append(all, f.pod(fmt.Sprint("p", i), 1))
	}

	var busy sync.WaitGroup
	for _, pod := range all {
		holder := allocation.NewHolder(string(pod.UID), &sdk.PodInfo{}, nil)
		busy.Go(func() {
			for range 200 {
				f.cache.Reserve("n", pod, holder, "x")
				f.cache.Keep("n", pod.UID)
				f.cache.Unreserve("n", pod.UID)
				if !f.cache.Resume("n", pod) {
					t.Error("there is nothing to resume")
				}
				f.cache.Resolve("n", pod.UID)
				if f.cache.Reserved("n", pod.UID) != "x" {
					t.Error("nothing is reserved")
				}
				f.cache.PodDeleted(pod.UID)
			}
		})
		busy.Go(func() {
			info := nodeInfo(versions[0], assumed(pod, "n"))
			for range 200 {
				_, _ = f.cache.State(t.Context(), info, pod, true)
				_, _ = f.cache.Requests.Read(pod)
			}
		})
	}
	busy.Go(func() {
		for range 10 {
			for _, node := range versions {
				if err := f.indexer.Update(node); err != nil {
					t.Error(err)
				}
				f.cache.Observe(t.Context(), node)
			}
			f.deleteNode(versions[len(versions)-1])
		}
	})
	busy.Wait()
	if n := f.cache.find("n"); n != nil {
		t.Errorf("the node left %v behind", n)
	}
	if f.cache.Serves("nvidia.com/gpu") {
		t.Error("a name is served that no node lists")
	}
}
