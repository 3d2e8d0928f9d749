// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// In a large cluster most nodes are not evaluated for most pods.
func TestANodeThatIsNotEvaluatedIsLookedUpOnlyWhenItHasChanged(t *testing.T) {
	annotation, err := deviceinfo.EncodeNode(sdk.NewNodeInfoWithName("n"))
	if err != nil {
		t.Fatal(err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "1",
		Annotations: map[string]string{deviceinfo.Annotation: annotation}}}
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)
	if err := indexer.Add(node); err != nil {
		t.Fatal(err)
	}
	schedulers := allocation.New(klog.Background(), nil)
	states := nodestate.New(schedulers, corelisters.NewNodeLister(indexer), clock.RealClock{})
	c := New(schedulers, states).(*cache)
	info := framework.NewNodeInfo()
	info.SetNode(node)
	step := func(what string, want bool) {
		t.Helper()
		if !c.refresh([]fwk.NodeInfo{info}) {
			t.Fatal("the NodeInfo is not upstream's")
		}
		e := &c.index.entries[0]
		if got := !e.Tainted; got != want {
			t.Errorf("%s: it is looked up: %t, want %t", what, got, want)
		}
		e.Tainted = true // which it is not, so that a look-up sets it back
	}
	step("at first", true)
	step("when nothing has changed", false)
	states.Observe(t.Context(), node)
	step("when its inventory was read", true)
	step("and again", false)
	info.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}})
	step("when a pod came", true)
	step("and again", false)
}
