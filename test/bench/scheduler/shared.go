// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
)

// shared are two schedulers that share nodes: ours has those with devices, upstream's the others.
type shared struct {
	rate   float64 // pods that are created in a second, half of them for each
	period time.Duration
}

// What a node has, and what each pod of this measurement requests: eight fill a node, and devices
// are left, so that CPU is what pods lose for.
const (
	sharedNodeCPU = "16"
	sharedPodCPU  = "2"
	podsOfNode    = 8
)

// sharedFills are the parts of the cluster's CPU that pods use. With the last one pods always wait
// for CPU, so that both schedulers are after each place that becomes free.
var sharedFills = []float64{0.5, 0.8, 0.9, 0.95, 1}

// waitingAtMost is how many pods are created beyond those that fit.
const waitingAtMost = 100

// run measures each fill with both schedulers, and the last one with ours alone.
func (s shared) run(ctx context.Context, b *bench, nodes int) (result report.Shared, err error) {
	result = report.Shared{Nodes: nodes, PodsOfNode: podsOfNode, Rate: s.rate, Seconds: s.period.Seconds()}
	made, err := s.makeNodes(ctx, b, nodes)
	if err != nil {
		return result, err
	}
	names := [2]string{"shared-ours", "shared-upstreams"}
	limited, cancel := context.WithTimeoutCause(ctx, drainTimeout, fmt.Errorf("it was not in %v", drainTimeout))
	defer cancel()
	for i, ours := range []bool{true, false} {
		scheduler, err := b.start(names[i], ours)
		if err != nil {
			return result, err
		}
		defer scheduler.stop()
		if err := scheduler.awaitReady(limited); err != nil {
			return result, fmt.Errorf("%w; its log ends with:\n%s", err, scheduler.said())
		}
	}
	measure := func(fill float64, names [2]string) error {
		period, err := s.measure(ctx, b, made, fill, names)
		if err != nil {
			return fmt.Errorf("CPU in use by %.2f: %w", fill, err)
		}
		period.Fill, period.Alone = fill, names[0] == names[1]
		result.Periods = append(result.Periods, period)
		fmt.Fprintln(os.Stderr, period)
		return nil
	}
	for _, fill := range sharedFills {
		if err := measure(fill, names); err != nil {
			return result, err
		}
	}
	return result, measure(1, [2]string{names[0], names[0]})
}

// makeNodes makes nodes with GPUs and little CPU.
func (s shared) makeNodes(ctx context.Context, b *bench, count int) ([]*corev1.Node, error) {
	made := make([]*corev1.Node, count)
	return made, each(ctx, count, func(ctx context.Context, i int) error {
		node, err := nodeOf(inventoryOf(fmt.Sprintf("node-%05d", i)))
		if err != nil {
			return err
		}
		node.Status.Capacity[corev1.ResourceCPU] = resource.MustParse(sharedNodeCPU)
		if made[i], err = b.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", node.Name, err)
		}
		return nil
	})
}

// measure returns what kubelets admit and refuse in one period, after pods have used that part of
// the CPU for a while. names are the schedulers of pods with devices and of the others.
func (s shared) measure(
	ctx context.Context, b *bench, nodes []*corev1.Node, fill float64, names [2]string,
) (period report.SharedPeriod, err error) {
	capacity := float64(podsOfNode * len(nodes))
	lifetime := time.Duration(fill * capacity / s.rate * float64(time.Second))
	kubelets := newKubelets(b.client, nodes, lifetime)
	group, inner := errgroup.WithContext(ctx)
	inner, stop := context.WithCancel(inner)
	defer stop()
	group.Go(func() error { return kubelets.run(inner) })
	group.Go(func() error {
		return s.create(inner, b, kubelets, names, int(capacity)+waitingAtMost)
	})
	group.Go(func() error {
		defer stop()
		if err := sleep(inner, lifetime+lifetime/4); err != nil { // until as many end as are created
			return nil // the others know why
		}
		before, began := kubelets.counted(), time.Now()
		if err := sleep(inner, s.period); err != nil {
			return nil
		}
		after := kubelets.counted()
		period.Seconds = time.Since(began).Seconds()
		for i := range after {
			period.Admitted[i] = after[i].admitted - before[i].admitted
			period.Lost[i] = after[i].lost - before[i].lost
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return period, err
	}
	if ctx.Err() != nil {
		return period, context.Cause(ctx)
	}
	return period, s.clear(ctx, b)
}

// create creates pods at the rate until ctx ends, except while there are as many as most.
func (s shared) create(ctx context.Context, b *bench, kubelets *kubelets, names [2]string, most int) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / s.rate))
	defer tick.Stop()
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for i := 0; ; {
		select {
		case <-inner.Done():
			return group.Wait()
		case <-tick.C:
		}
		if i-kubelets.gone() >= most {
			continue
		}
		number := i
		i++
		group.Go(func() error {
			kind := number % len(names)
			pod := podOf([]request{one, nothing}[kind], podName(kind, number), names[kind])
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(sharedPodCPU)
			if _, err := b.client.CreatePod(inner, pod); err != nil && inner.Err() == nil {
				return err
			}
			return nil
		})
	}
}

// clear removes all pods and waits until they are gone, and the schedulers know it.
func (s shared) clear(ctx context.Context, b *bench) error {
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	for {
		if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)},
			metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete the pods: %w", err)
		}
		left, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		if err := sleep(ctx, clearing); err != nil {
			return err
		}
		if len(left.Items) == 0 {
			return nil
		}
	}
}
