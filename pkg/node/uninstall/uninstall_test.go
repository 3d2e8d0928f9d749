// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/agent"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

const namespace = "kubedevice-system"

func node(name string, enrolled bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if enrolled {
		n.Labels = map[string]string{enrolment.Label: "true", enrolment.GroupLabel: "gpus"}
	}
	return n
}

// pod returns a pod that is bound to a node, or waits if that is empty.
func pod(name, on string, holds bool, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: on, SchedulerName: schedulerName, Containers: []corev1.Container{{Name: "main"}},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	if holds {
		p.Annotations = map[string]string{deviceinfo.Annotation: `{"podname":"` + name + `","nodename":"` + on +
			`","runningcontainer":{"main":{"allocatefrom":{"a":"resource/group/gpu/0/cards"}}}}`}
	}
	return p
}

// newCluster returns a cluster with these objects, and options that delete its keys.
func newCluster(objects ...runtime.Object) (*fake.Clientset, *Options, *[]string) {
	client := fake.NewClientset(append(objects,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: agent.LeaveLease}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "key"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "certificates"}},
	)...)
	said := &[]string{}
	return client, &Options{
		Client: client, Namespace: namespace, SchedulerGoes: true, Timeout: time.Minute, Secret: "key",
		ConfigMap: "certificates", Progress: func(line string) { *said = append(*said, line) },
	}, said
}

// leaseOf returns who holds the lease that has nodes given back.
func leaseOf(t *testing.T, client *fake.Clientset) coordinationv1.LeaseSpec {
	t.Helper()
	// Reactors may not call the client.
	lease, err := client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), namespace,
		agent.LeaveLease)
	if err != nil {
		t.Fatal(err)
	}
	return lease.(*coordinationv1.Lease).Spec
}

func TestNothingIsDoneWhilePodsAreInTheWay(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string // empty means that it is not in the way
	}{
		"one that holds devices": {
			pod("a", "node-1", true, corev1.PodRunning), "1 pods hold devices: default/a (on node-1)",
		},
		"one that waits for the scheduler": {
			pod("a", "", false, corev1.PodPending),
			"1 pods wait for the scheduler kubedevice-scheduler, which no other serves: default/a",
		},
		"one that has ended":               {pod("a", "node-1", true, corev1.PodSucceeded), ""},
		"one without devices":              {pod("a", "node-1", false, corev1.PodRunning), ""},
		"one on a node of somebody else's": {pod("a", "node-2", true, corev1.PodRunning), ""},
	} {
		t.Run(name, func(t *testing.T) {
			client, o, _ := newCluster(node("node-1", true), node("node-2", false), test.pod)
			err := o.check(t.Context())
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if Run(t.Context(), *o) == nil || leaseOf(t, client).HolderIdentity != nil {
				t.Error("nodes are being given back")
			}
			o.Drain = true
			if err := o.check(t.Context()); err != nil {
				t.Errorf("with drain: %v", err)
			}
		})
	}
}

func TestAllNodesAreGivenBackAndThenTheKeysGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, o, said := newCluster(node("node-1", true), node("node-2", true), node("node-3", false))
		left := 0
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if leaseOf(t, client).HolderIdentity != nil && left < 2 { // an agent has heard of it
				left++
				name := fmt.Sprintf("node-%d", left)
				nodes := corev1.SchemeGroupVersion.WithResource("nodes")
				return false, nil, client.Tracker().Update(nodes, node(name, false), "")
			}
			return false, nil, nil
		})
		if err := Run(t.Context(), *o); err != nil {
			t.Fatal(err)
		}
		if spec := leaseOf(t, client); spec.LeaseDurationSeconds == nil || *spec.LeaseDurationSeconds != 600 {
			t.Errorf("agents would take their nodes over again before they are deleted: %+v", spec)
		}
		_, err := client.CoreV1().Secrets(namespace).Get(t.Context(), "key", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the key is left: %v", err)
		}
		if last := (*said)[len(*said)-1]; last != "all nodes are given back" {
			t.Errorf("it says %q", *said)
		}
	})
}

func TestANodeThatDoesNotLeaveIsNamedAndNothingGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, o, _ := newCluster(node("node-1", true))
		err := Run(t.Context(), *o)
		if err == nil || !strings.Contains(err.Error(), "after 1m0s nodes are not given back: node-1: see why") {
			t.Errorf("got %v", err)
		}
		if leaseOf(t, client).HolderIdentity != nil {
			t.Error("agents would still give their nodes back")
		}
		_, err = client.CoreV1().Secrets(namespace).Get(t.Context(), "key", metav1.GetOptions{})
		if err != nil {
			t.Errorf("the key: %v", err)
		}
	})
}
