// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// outcome is what becomes of a batch: its pods are bound, and the scheduler says so in an event for
// each.
type outcome struct {
	pods, events *arrivals
}

// watchOutcome begins to watch. There must be no bound pods yet. Close ends it.
func (b *bench) watchOutcome(ctx context.Context) (outcome, error) {
	core := b.client.CoreV1().RESTClient()
	selecting := func(resource string, selector fields.Selector) *cache.ListWatch {
		return cache.NewFilteredListWatchFromClient(core, resource, metav1.NamespaceDefault,
			func(o *metav1.ListOptions) {
				o.FieldSelector = selector.String()
			})
	}
	// A pod comes into sight when it is bound.
	bound := selecting("pods", fields.OneTermNotEqualSelector("spec.nodeName", ""))
	none, err := bound.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return outcome{}, fmt.Errorf("list bound pods: %w", err)
	}
	from := none.(*corev1.PodList).ResourceVersion // which all resources count together
	pods, err := watchArrivals(ctx, bound, from)
	if err != nil {
		return outcome{}, fmt.Errorf("watch bound pods: %w", err)
	}
	events, err := watchArrivals(ctx, selecting("events", fields.OneTermEqualSelector("reason", "Scheduled")), from)
	if err != nil {
		pods.close()
		return outcome{}, fmt.Errorf("watch events: %w", err)
	}
	return outcome{pods, events}, nil
}

// await waits until so many pods are bound and have their event, and returns when that was.
func (o outcome) await(ctx context.Context, count int, scheduler *process) (at time.Time, err error) {
	if err := o.pods.await(ctx, count, scheduler); err != nil {
		return at, fmt.Errorf("bound pods: %w", err)
	}
	if err := o.events.await(ctx, count, scheduler); err != nil {
		return at, fmt.Errorf("events of bound pods: %w", err)
	}
	at = o.pods.all()[count-1].at
	if last := o.events.all()[count-1].at; last.After(at) {
		at = last
	}
	return at, nil
}

// bound returns the bound pods.
func (o outcome) bound() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, arrived := range o.pods.all() {
		pods = append(pods, arrived.object.(*corev1.Pod))
	}
	return pods
}

// close ends the watches.
func (o outcome) close() {
	o.pods.close()
	o.events.close()
}

// arrivals are the objects that come into a watch's sight.
type arrivals struct {
	watch watch.Interface
	ended chan struct{} // when the watch has ended
	news  chan struct{} // has something when there is more to see

	mu   sync.Mutex
	seen []arrival
}

// arrival is an object, and when it was seen.
type arrival struct {
	object runtime.Object
	at     time.Time
}

// watchArrivals begins to watch from a resource version on. Close ends it.
func watchArrivals(ctx context.Context, of *cache.ListWatch, from string) (*arrivals, error) {
	// A busy API server ends watches that it thinks are slow.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from, of)
	if err != nil {
		return nil, err
	}
	a := &arrivals{watch: w, ended: make(chan struct{}), news: make(chan struct{}, 1)}
	go a.collect()
	return a, nil
}

func (a *arrivals) collect() {
	defer close(a.ended)
	for event := range a.watch.ResultChan() {
		if event.Type != watch.Added {
			continue
		}
		a.mu.Lock()
		a.seen = append(a.seen, arrival{event.Object, time.Now()})
		a.mu.Unlock()
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// close ends the watch.
func (a *arrivals) close() {
	a.watch.Stop()
	<-a.ended
}

// all returns what was seen until now.
func (a *arrivals) all() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[:len(a.seen):len(a.seen)]
}

// await waits until so many were seen.
func (a *arrivals) await(ctx context.Context, count int, scheduler *process) error {
	for len(a.all()) < count {
		select {
		case <-a.news:
		case <-a.ended:
			return errors.New("the watch has ended")
		case <-scheduler.ended:
			return errors.New("the scheduler has ended")
		case <-ctx.Done():
			return fmt.Errorf("%d of %d: %w", len(a.all()), count, context.Cause(ctx))
		}
	}
	return nil
}
