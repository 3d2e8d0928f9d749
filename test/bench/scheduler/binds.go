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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// binds are the pods that are bound in a batch, as they come.
type binds struct {
	watch watch.Interface
	ended chan struct{} // when the watch has ended
	news  chan struct{} // has something when there is more to see

	mu   sync.Mutex
	seen []bind
}

// bind is a bound pod, and when that was seen.
type bind struct {
	pod *corev1.Pod
	at  time.Time
}

// watchBinds begins to watch. There must be no bound pods yet. Close ends it.
func (b *bench) watchBinds(ctx context.Context) (*binds, error) {
	// A pod comes into sight when it is bound.
	bound := cache.NewFilteredListWatchFromClient(b.client.CoreV1().RESTClient(), "pods", metav1.NamespaceDefault, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	})
	none, err := bound.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list bound pods: %w", err)
	}
	// A busy API server ends watches that it thinks are slow.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, none.(*corev1.PodList).ResourceVersion, bound)
	if err != nil {
		return nil, fmt.Errorf("watch bound pods: %w", err)
	}
	s := &binds{watch: w, ended: make(chan struct{}), news: make(chan struct{}, 1)}
	go s.collect()
	return s, nil
}

func (s *binds) collect() {
	defer close(s.ended)
	for event := range s.watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type != watch.Added {
			continue
		}
		s.mu.Lock()
		s.seen = append(s.seen, bind{pod, time.Now()})
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// close ends the watch.
func (s *binds) close() {
	s.watch.Stop()
	<-s.ended
}

// all returns what was seen until now.
func (s *binds) all() []bind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[:len(s.seen):len(s.seen)]
}

// await waits until so many pods are bound.
func (s *binds) await(ctx context.Context, count int, scheduler *process) error {
	for len(s.all()) < count {
		select {
		case <-s.news:
		case <-s.ended:
			return errors.New("watch bound pods: the watch has ended")
		case <-scheduler.ended:
			return errors.New("the scheduler has ended")
		case <-ctx.Done():
			return fmt.Errorf("%d pods of %d are bound: %w", len(s.all()), count, context.Cause(ctx))
		}
	}
	return nil
}
