// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler tests on a real cluster what the scheduler does for pods that cannot have
// devices at once: it evicts others for them, it lets groups wait until all of them fit, and
// it picks up where it was killed.
package scheduler

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

// shared is the cluster of all tests of this package: one node with 8 simulated GPUs in pairs, and
// pod groups switched on.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-scheduler", 1)
	if err != nil {
		return options, err
	}
	if options.Kubernetes == cluster.Kubernetes137 { // older ones have no such pod groups
		const gate = "--feature-gates=GenericWorkload=true"
		options.ExtraArgs = map[string][]string{
			"kube-apiserver": {gate, "--runtime-config=scheduling.k8s.io/v1beta1=true"},
		}
		options.Scheduler.Args = append(options.Scheduler.Args, gate)
	}
	return options, nil
}

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 4 * time.Minute

// capacity is the number of GPUs of the cluster.
const capacity = 8

// story is what one test has of the cluster.
type story struct {
	*testing.T
	ctx       context.Context
	namespace string
	observer  *observe.Observer
}

// begin returns a story with a namespace of its own when the node has its devices.
func begin(t *testing.T) *story {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	observer, err := observe.New(ctx, shared)
	if err != nil {
		t.Fatal(err)
	}
	return &story{T: t, ctx: ctx, namespace: clustertest.Namespace(t, shared.Client), observer: observer}
}

// pod returns a pod whose container main wants this many GPUs.
func (s *story) pod(name string, gpus int64) *corev1.Pod {
	return clustertest.IdlePod(s.namespace, name, map[corev1.ResourceName]int64{observe.Resource: gpus})
}

func (s *story) create(pod *corev1.Pod) *corev1.Pod {
	s.Helper()
	return clustertest.CreatePod(s.ctx, s, shared.Client, pod)
}

func (s *story) await(pod *corev1.Pod, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	s.Helper()
	return clustertest.AwaitPod(s.ctx, s, shared.Client, pod, what, is)
}

func (s *story) run(pod *corev1.Pod) *corev1.Pod {
	s.Helper()
	return clustertest.RunPod(s.ctx, s, shared.Client, pod)
}

func (s *story) delete(pod *corev1.Pod) {
	s.Helper()
	clustertest.DeletePod(s.ctx, s, shared.Client, pod)
}

// pods returns the names of the pods that are there and not on their way out.
func (s *story) pods() map[string]bool {
	s.Helper()
	list, err := shared.Client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	names := map[string]bool{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			names[pod.Name] = true
		}
	}
	return names
}

// devices returns the GPUs that a running pod sees, and fails the test unless those are what the
// scheduler chose for it.
func (s *story) devices(pod *corev1.Pod) *observe.Observation {
	s.Helper()
	seen, err := s.observer.Observe(s.ctx, pod, "main")
	if err != nil {
		s.Fatal(err)
	}
	if err := seen.Agree(); err != nil {
		s.Error(err)
	}
	return seen
}

// expectDistinct fails the test unless the pods see that many GPUs, each of them once.
func (s *story) expectDistinct(want int, pods ...*corev1.Pod) {
	s.Helper()
	holders := map[string]string{}
	for _, pod := range pods {
		for _, device := range s.devices(pod).Visible {
			if other, taken := holders[device]; taken {
				s.Errorf("the pods %s and %s both see %s", other, pod.Name, device)
			}
			holders[device] = pod.Name
		}
	}
	if len(holders) != want {
		s.Errorf("the pods see %d GPUs, want %d", len(holders), want)
	}
}
