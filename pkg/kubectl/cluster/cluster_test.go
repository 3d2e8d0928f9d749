// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// paged makes a client list so many nodes in pages, and returns how many objects each request got.
func paged(client *fake.Clientset, nodes int) *[]int {
	var pages []int
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		from, _ := strconv.Atoi(options.Continue)
		to := nodes
		if options.Limit > 0 {
			to = min(nodes, from+int(options.Limit))
		}
		list := &corev1.NodeList{}
		for i := from; i < to; i++ {
			list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("node-%05d", i), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
				Annotations: map[string]string{deviceinfo.Annotation: "{}", "other": "value"},
			}})
		}
		if to < nodes {
			list.Continue = strconv.Itoa(to)
		}
		pages = append(pages, len(list.Items))
		return true, list, nil
	})
	return &pages
}

func TestNodesAreListedInPages(t *testing.T) {
	for _, test := range []struct {
		size  int64
		pages int
	}{{500, 10}, {4999, 2}, {5000, 1}, {0, 1}} {
		client := fake.NewClientset()
		pages := paged(client, 5000)
		nodes, err := (&Reader{Client: client.CoreV1(), PageSize: test.size}).Nodes(t.Context(), Query{})
		if err != nil || len(nodes) != 5000 || len(*pages) != test.pages {
			t.Fatalf("with pages of %d: %d nodes in pages of %v, %v", test.size, len(nodes), *pages, err)
		}
		if !slices.IsSortedFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("with pages of %d: nodes are not in their order", test.size)
		}
		if n := nodes[0]; n.ManagedFields != nil || len(n.Annotations) != 1 {
			t.Errorf("kept of a node: %+v", n.ObjectMeta)
		}
	}
}

func TestTrimmedNodesKeepTheirExtendedResources(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
			"cpu": apiresource.MustParse("4"), "nvidia.com/gpu": apiresource.MustParse("8"),
		}},
	})
	nodes, err := (&Reader{Client: client.CoreV1()}).Nodes(t.Context(), Query{})
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	capacity := nodes[0].Status.Capacity
	if gpus := capacity["nvidia.com/gpu"]; len(capacity) != 1 || gpus.Value() != 8 {
		t.Errorf("kept %v", capacity)
	}
}

// Of its conditions, only what a pod needs: their times change all the time.
func TestTrimmedNodesKeepWhetherTheyTakePods(t *testing.T) {
	node := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.0.0.0/24"}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastHeartbeatTime: metav1.Now(), Message: "no network"},
	}
	want := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	want.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	if diff := cmp.Diff(want, trimNode(node)); diff != "" {
		t.Errorf("kept of a node (-want +got):\n%s", diff)
	}
}

func TestMissingNamedObjectsAreLeftOut(t *testing.T) {
	client := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "x"}},
	)
	r := &Reader{Client: client.CoreV1()}
	nodes, err := r.Nodes(t.Context(), Query{Names: []string{"a", "b"}})
	if len(nodes) != 1 || err == nil {
		t.Errorf("%d nodes, %v", len(nodes), err)
	}
	pods, err := r.Pods(t.Context(), Query{Names: []string{"q", "p"}, Namespace: "x"}, nil)
	if len(pods) != 1 || err == nil {
		t.Errorf("%d pods, %v", len(pods), err)
	}
}
