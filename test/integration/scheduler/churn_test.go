// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/kube"
)

// awaitBound waits until this many pods are bound.
func (c *cluster) awaitBound(want int) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	if err := await.Success(ctx, fmt.Sprintf("%d bound pods", want), func(context.Context) error {
		if bound := c.check(); bound != want {
			return fmt.Errorf("%d pods are bound", bound)
		}
		return nil
	}); err != nil {
		c.Fatal(err)
	}
}

// bound returns a bound pod.
func (c *cluster) bound() *corev1.Pod {
	c.Helper()
	for _, pod := range c.pods() {
		if kube.Scheduled(&pod) {
			return &pod
		}
	}
	c.Fatal("no pod is bound")
	return nil
}

func TestAsManyPodsRunAsThereAreDevicesAndEachDeletionLetsTheNextOneIn(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 8)
	c.node("n2", 8)
	startScheduler(t)
	const pods, gpus = 60, 16
	var last *corev1.Pod
	for i := range pods {
		last = c.create(newPod(fmt.Sprintf("p%02d", i), 1))
	}
	c.awaitBound(gpus)
	var slowest time.Duration
	for range pods - gpus {
		before := time.Now()
		c.delete(c.bound())
		c.awaitBound(gpus)
		slowest = max(slowest, time.Since(before))
	}
	t.Logf("the next pod was bound %v after a deletion or sooner", slowest)
	for range gpus {
		c.delete(c.bound())
	}
	if got := len(c.pods()); got != 0 {
		t.Errorf("%d pods are left, among them perhaps %s", got, last.Name)
	}
}

// The scheduler is killed again and again while pods come and go.
func TestNoDeviceIsGivenTwiceThoughTheSchedulerIsKilledDuringChurn(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 8)
	c.node("n2", 8)
	const rounds, perRound, gpus = 5, 24, 16
	next := 0
	for range rounds {
		scheduler := startScheduler(t)
		for range perRound {
			c.create(newPod(fmt.Sprintf("p%03d", next), 1))
			next++
		}
		c.awaitBound(gpus)
		for range gpus / 2 {
			c.delete(c.bound()) // and the scheduler is at work on the next ones
		}
		scheduler.kill()
		c.check()
		c.delete(c.bound()) // while there is no scheduler
	}
	startScheduler(t)
	c.awaitBound(gpus)
}
