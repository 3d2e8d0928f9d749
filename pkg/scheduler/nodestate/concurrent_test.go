// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Filters look at a node while bindings fail, events come in, and the node goes and comes back. In
// the end nothing is left of it all.
func TestEverythingMayHappenAtOnce(t *testing.T) {
	w := newWorld(t)
	var versions []*v1.Node
	for i := range 20 {
		versions = append(versions, w.node("n", "n-1", "A", fmt.Sprint("B", i%2)))
	}
	const pods = 4
	var all []*v1.Pod
	for i := range pods {
		all = append(all, w.pod(fmt.Sprint("p", i), 1))
	}

	var busy sync.WaitGroup
	for _, pod := range all {
		holder := dispatch.NewHolder(string(pod.UID), &sdk.PodInfo{}, nil)
		busy.Go(func() {
			for range 200 {
				w.cache.Reserve("n", pod, holder, "x")
				w.cache.Keep("n", pod.UID)
				w.cache.Unreserve("n", pod.UID)
				if !w.cache.Resume("n", pod) {
					t.Error("there is nothing to resume")
				}
				w.cache.Settle("n", pod.UID)
				if w.cache.Reserved("n", pod.UID) != "x" {
					t.Error("nothing is reserved")
				}
				w.cache.PodGone(pod.UID)
			}
		})
		busy.Go(func() {
			info := nodeInfo(versions[0], assumed(pod, "n"))
			for range 200 {
				_, _ = w.cache.Of(t.Context(), info, pod, true)
				_, _ = w.cache.Request(pod)
			}
		})
	}
	busy.Go(func() {
		for range 10 {
			for _, node := range versions {
				if err := w.indexer.Update(node); err != nil {
					t.Error(err)
				}
				w.cache.Observe(t.Context(), node)
			}
			w.deleteNode(versions[len(versions)-1])
		}
	})
	busy.Wait()
	if n := w.cache.find("n"); n != nil {
		t.Errorf("the node left %v behind", n)
	}
	if w.cache.Serves("nvidia.com/gpu") {
		t.Error("a name is served that no node lists")
	}
}
