// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
func pod(name, nodeName string, holds bool, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, SchedulerName: schedulerName, Containers: []corev1.Container{{Name: "main"}},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	if holds {
		p.Annotations = map[string]string{deviceinfo.Annotation: `{"podname":"` + name + `","nodename":"` + nodeName +
			`","runningcontainer":{"main":{"allocatefrom":{"a":"resource/group/gpu/0/cards"}}}}`}
	}
	return p
}

// lines are the lines that were written, each by one call of Write.
type lines []string

func (l *lines) Write(line []byte) (int, error) {
	*l = append(*l, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// newCluster returns a cluster with these objects, and options that delete its keys.
func newCluster(objects ...runtime.Object) (*fake.Clientset, *Options, *lines) {
	client := fake.NewClientset(append(objects,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: agent.LeaveLease}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "key"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "certificates"}},
	)...)
	said := &lines{}
	return client, &Options{
		Client: client, Namespace: namespace, SchedulerGoes: true, Timeout: time.Minute, Secret: "key",
		ConfigMap: "certificates", Progress: said,
	}, said
}

// leaseOf returns the lease with the order to give back nodes.
func leaseOf(t *testing.T, client *fake.Clientset) coordinationv1.LeaseSpec {
	t.Helper()
	// Reactors must not call the client.
	lease, err := client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), namespace,
		agent.LeaveLease)
	if err != nil {
		t.Fatal(err)
	}
	return lease.(*coordinationv1.Lease).Spec
}

func TestDoesNothingWhilePodsBlock(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string // empty means that it does not block
	}{
		"one that holds devices": {
			pod("a", "node-1", true, corev1.PodRunning), "1 pods hold devices: default/a (on node-1)",
		},
		"one that waits for the scheduler": {
			pod("a", "", false, corev1.PodPending),
			"1 pods wait for the scheduler kubedevice-scheduler, which no other serves: default/a",
		},
		"one that has ended":                 {pod("a", "node-1", true, corev1.PodSucceeded), ""},
		"one without devices":                {pod("a", "node-1", false, corev1.PodRunning), ""},
		"one on a node that is not enrolled": {pod("a", "node-2", true, corev1.PodRunning), ""},
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

func TestGivesBackAllNodesThenDeletesTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, o, said := newCluster(node("node-1", true), node("node-2", true), node("node-3", false))
		left := 0
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if leaseOf(t, client).HolderIdentity != nil && left < 2 { // an agent has seen it
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

func TestNamesANodeThatStaysAndDeletesNothing(t *testing.T) {
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

func TestNothingToGiveBackWithoutAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, o, _ := newCluster(node("node-1", false))
		if err := client.CoordinationV1().Leases(namespace).Delete(t.Context(), agent.LeaveLease,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := Run(t.Context(), *o); err != nil {
			t.Error(err)
		}
		_, err := client.CoreV1().Secrets(namespace).Get(t.Context(), "key", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the key is left: %v", err)
		}
	})
}

func TestNamesAnEnrolledNodeWithoutAgentsAndDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, o, _ := newCluster(node("node-1", true))
		if err := client.CoordinationV1().Leases(namespace).Delete(t.Context(), agent.LeaveLease,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		err := Run(t.Context(), *o)
		if err == nil || !strings.Contains(err.Error(), "no agent gives them back: node-1: read lease") {
			t.Errorf("got %v", err)
		}
		_, err = client.CoreV1().Secrets(namespace).Get(t.Context(), "key", metav1.GetOptions{})
		if err != nil {
			t.Errorf("the key: %v", err)
		}
	})
}

// controlled returns a pod that waits and has a controller.
func controlled(name string) *corev1.Pod {
	p := pod(name, "", false, corev1.PodPending)
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&metav1.ObjectMeta{Name: "set", UID: "set"}, corev1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	return p
}

// nameOf is the name of the policy and its binding.
const nameOf = "kubedevice-scheduler-name"

// newMutatedCluster returns a cluster whose API server sets the scheduler's name in pods until a
// while after the deletion of the policy's binding, and whose controllers create evicted pods
// again. Pods with one of the names named have the scheduler's name in their template.
func newMutatedCluster(objects []runtime.Object, named ...string) (*fake.Clientset, *Options, *lines) {
	client, o, said := newCluster(append(objects,
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: nameOf}})...)
	o.Drain, o.PolicyBinding = true, nameOf
	var unbound time.Time
	client.PrependReactor("delete", "mutatingadmissionpolicybindings",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			unbound = time.Now()
			return false, nil, nil
		})
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		name := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		next := controlled(name + "-2")
		if !slices.Contains(named, name) && !unbound.IsZero() && time.Since(unbound) > 5*time.Second {
			next.Spec.SchedulerName = corev1.DefaultSchedulerName
		}
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		return true, nil, errors.Join(client.Tracker().Delete(pods, next.Namespace, name), client.Tracker().Add(next))
	})
	return client, o, said
}

func TestPodsNamedByThePolicyAreCreatedAgainWithoutTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, o, said := newMutatedCluster([]runtime.Object{controlled("evicted")})
		conflicts := 1 // the scheduler may write the pod's condition just now
		client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetSubresource() != "eviction" || conflicts == 0 {
				return false, nil, nil
			}
			conflicts--
			return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "evicted", errors.New("it has changed"))
		})
		if err := Run(t.Context(), *o); err != nil {
			t.Fatal(err)
		}
		pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(pods.Items) != 1 || pods.Items[0].Spec.SchedulerName != corev1.DefaultSchedulerName {
			t.Errorf("pods %q, want one that another scheduler serves", podNames(pods.Items))
		}
		if text := strings.Join(*said, "\n"); strings.Contains(text, "will wait until they are deleted") {
			t.Errorf("it says %q", *said)
		}
	})
}

func TestNamesPodsThatWaitAtTheEnd(t *testing.T) {
	const wait = "2 pods wait for the scheduler kubedevice-scheduler, which goes, and will wait until they are " +
		"deleted: "
	for name, test := range map[string]struct {
		change func(*Options)
		want   string // the pods that wait
	}{
		"of a template with the name, and without a controller": {
			func(*Options) {}, wait + "default/alone, default/named-2;",
		},
		"without a policy that gives names": {
			func(o *Options) { o.PolicyBinding = "" }, wait + "default/alone, default/named;",
		},
		"when the scheduler stays": {func(o *Options) { o.SchedulerGoes = false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, o, said := newMutatedCluster([]runtime.Object{
					controlled("named"), pod("alone", "", false, corev1.PodPending),
					pod("runs", "node-1", false, corev1.PodRunning),
				}, "named")
				test.change(o)
				if err := Run(t.Context(), *o); err != nil {
					t.Fatal(err)
				}
				last := (*said)[len(*said)-1]
				if test.want == "" && last != "all nodes are given back" || !strings.HasPrefix(last, test.want) {
					t.Errorf("it says %q, want %q", *said, test.want)
				}
			})
		})
	}
}
