// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// capacity is the number of GPUs of the cluster.
const capacity = 16

func TestSixtyPodsRunInTurnOnFewerDevices(t *testing.T) {
	clustertest.OnlyInFull(t, "a hundred pods take turns in test/e2e/vendors")
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	const pods = 60
	var creating errgroup.Group
	for i := range pods {
		creating.Go(func() error {
			_, err := shared.Client.CreatePod(ctx, gpuPod(namespace, fmt.Sprintf("pod-%02d", i), 1))
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
	all := awaitPods(ctx, t, namespace, "to be either ready or found unschedulable", func(all podSet) bool {
		return len(all.Those(kube.Ready))+len(all.Those(kube.Unschedulable)) == pods
	})

	running := all.Those(kube.Ready)
	if len(running) != capacity {
		t.Fatalf("%d pods run on %d devices", len(running), capacity)
	}
	if err := all.Twice(); err != nil {
		t.Error(err)
	}
	expectDistinct(ctx, t, running)
	for _, gone := range running[:5] {
		all = expectNextIn(ctx, t, all, gone)
	}
}

// expectDistinct fails the test unless each pod's container sees one device, which no other one
// sees.
func expectDistinct(ctx context.Context, t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	var mu sync.Mutex
	seenBy := map[string]string{}
	var looking errgroup.Group
	looking.SetLimit(4)
	for _, pod := range pods {
		looking.Go(func() error {
			seen, err := observer.Observe(ctx, pod, "main")
			if err != nil {
				return err
			}
			if err := seen.Agree(); err != nil {
				return err
			}
			if len(seen.Visible) != 1 {
				return fmt.Errorf("%s sees the devices %q, want one", seen, seen.Visible)
			}
			mu.Lock()
			defer mu.Unlock()
			device := seen.Node + " " + seen.Visible[0]
			if other, seen := seenBy[device]; seen {
				return fmt.Errorf("the pods %s and %s both see %s", other, pod.Name, device)
			}
			seenBy[device] = pod.Name
			return nil
		})
	}
	if err := looking.Wait(); err != nil {
		t.Error(err)
	}
}

// expectNextIn deletes a pod and waits until one that waits has its device. It takes and returns
// the pods before and after that.
func expectNextIn(ctx context.Context, t *testing.T, before podSet, gone *corev1.Pod) (after podSet) {
	t.Helper()
	had := map[string]bool{}
	for _, pod := range before.Those(kube.Scheduled) {
		had[pod.Name] = true
	}
	freed, err := observer.Choice(gone, "main")
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Client.DeletePod(ctx, gone); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var next *corev1.Pod
	after = awaitPods(ctx, t, gone.Namespace, "to let the next one in", func(now podSet) bool {
		in := now.Those(func(pod *corev1.Pod) bool { return kube.Scheduled(pod) && !had[pod.Name] })
		if len(in) == 0 {
			return false
		}
		next = in[0]
		return true
	})
	t.Logf("pod %s was scheduled %v after pod %s was gone", next.Name, time.Since(began).Round(time.Millisecond),
		gone.Name)
	if err := after.Twice(); err != nil {
		t.Error(err)
	}
	allocated, err := observer.Choice(next, "main")
	if err != nil {
		t.Fatal(err)
	}
	if allocated.Node != freed.Node || allocated.Chosen[0] != freed.Chosen[0] {
		t.Errorf("pod %s was allocated %s %q, free was %s %q", next.Name, allocated.Node, allocated.Chosen, freed.Node,
			freed.Chosen)
	}
	return after
}
