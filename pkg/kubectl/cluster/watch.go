// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Change is an object that has come, has changed or is gone: a node or a pod.
type Change struct {
	Node *corev1.Node
	Pod  *corev1.Pod
	Gone bool
}

// Watch calls changed with all nodes and all pods that are meant, once they are known, and then
// with each change, or several at once. A nil query means no nodes, or no pods. It returns when ctx
// ends, with nil, when changed fails, and when the API server cannot list or watch the objects at
// the beginning. What fails later is tried again until it passes, and logged; reads, unless it is
// nil, is called with each such error, and with nil when all is read again.
func (r *Reader) Watch(
	ctx context.Context, nodes, pods *Query, changed func([]Change) error, reads func(error),
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	changes := &pending{signal: make(chan struct{}, 1), known: make(chan struct{})}
	health := &health{report: reads, failed: map[string]error{}}
	var synced []cache.InformerSynced
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	for _, s := range r.sources(nodes, pods) {
		informer, registered, err := s.informer(r, changes, health, cancel)
		if err != nil {
			return err
		}
		synced = append(synced, registered.HasSynced)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		close(changes.known)
		if err := changes.drain(ctx, changed); err != nil {
			return err
		}
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// source is what one informer follows.
type source struct {
	resource string
	query    Query
	object   runtime.Object
	list     cache.ListWithContextFunc
	watch    cache.WatchFuncWithContext
}

// sources returns those of the queries that are not nil.
func (r *Reader) sources(nodes, pods *Query) (sources []source) {
	if nodes != nil {
		sources = append(sources, source{
			resource: "nodes", query: *nodes, object: &corev1.Node{},
			list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return r.Client.Nodes().List(ctx, nodes.selecting(options))
			},
			watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return r.Client.Nodes().Watch(ctx, nodes.selecting(options))
			},
		})
	}
	if pods != nil {
		sources = append(sources, source{
			resource: "pods", query: *pods, object: &corev1.Pod{},
			list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return r.Client.Pods(pods.Namespace).List(ctx, pods.selecting(options))
			},
			watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return r.Client.Pods(pods.Namespace).Watch(ctx, pods.selecting(options))
			},
		})
	}
	return sources
}

// informer returns an informer that hands its changes and its health on, and calls cancel with an
// error that comes before all objects are known.
func (s source) informer(
	r *Reader, changes *pending, health *health, cancel context.CancelCauseFunc,
) (cache.SharedInformer, cache.ResourceEventHandlerRegistration, error) {
	listing := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		found, err := s.list(ctx, options)
		if err != nil { // what is listed is read when it is watched, too
			health.set(ctx, s.resource, err)
		}
		return found, err
	}
	watching := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		events, err := s.watch(ctx, options)
		health.set(ctx, s.resource, err)
		return events, err
	}
	from := cache.ToListWatcherWithWatchListSemantics(
		&cache.ListWatch{ListWithContextFunc: listing, WatchFuncWithContext: watching}, r.Client)
	informer := cache.NewSharedInformer(from, s.object, 0)
	if err := informer.SetTransform(trim); err != nil {
		return nil, nil, err
	}
	err := informer.SetWatchErrorHandlerWithContext(
		func(ctx context.Context, reflector *cache.Reflector, err error) {
			select {
			case <-changes.known:
				cache.DefaultWatchErrorHandler(ctx, reflector, err)
			default:
				cancel(Explain(err, "watch", s.resource, s.query.Namespace))
			}
		})
	if err != nil {
		return nil, nil, err
	}
	registered, err := informer.AddEventHandler(changes.handler(s.query))
	return informer, registered, err
}

// health is whether the sources can be read. It is safe for concurrent use.
type health struct {
	report func(error) // may be nil

	mu     sync.Mutex
	failed map[string]error // by resource
}

// set takes over how a request for a resource has ended.
func (h *health) set(ctx context.Context, resource string, err error) {
	if h.report == nil || ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // of an expired version nothing is wrong: the objects are listed next
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failed, resource)
	if err != nil {
		h.failed[resource] = err
	}
	for _, other := range h.failed {
		if err == nil {
			err = other
		}
	}
	h.report(err)
}

// selecting returns the options with the query's selectors.
func (q Query) selecting(options metav1.ListOptions) metav1.ListOptions {
	options.LabelSelector, options.FieldSelector = q.Labels, q.Fields
	return options
}

// trim reduces what informers keep.
func trim(object any) (any, error) {
	switch object := object.(type) {
	case *corev1.Node:
		return trimNode(object), nil
	case *corev1.Pod:
		return trimPod(object), nil
	default:
		return object, nil
	}
}

// pending are the changes that the reader has not seen yet.
type pending struct {
	signal chan struct{} // has a token when there are changes
	known  chan struct{} // is closed when all objects are known

	mu      sync.Mutex
	changes []Change
}

// handler returns what an informer calls for objects, of which those that are meant count.
func (p *pending) handler(query Query) cache.ResourceEventHandler {
	add := func(object any, gone bool) {
		c := Change{Gone: gone}
		c.Node, _ = object.(*corev1.Node)
		c.Pod, _ = object.(*corev1.Pod)
		if len(query.Names) > 0 && !slices.Contains(query.Names, c.name()) {
			return
		}
		p.mu.Lock()
		p.changes = append(p.changes, c)
		p.mu.Unlock()
		select {
		case p.signal <- struct{}{}:
		default:
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { add(object, false) },
		UpdateFunc: func(last, object any) {
			if isReplaced(last, object) {
				add(last, true)
			}
			add(object, false)
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			add(object, true)
		},
	}
}

// isReplaced reports whether a pod is another one than the last of its name. An informer that lists
// again knows of no deletion in between: to it, the one has become the other.
func isReplaced(last, now any) bool {
	before, ok := last.(*corev1.Pod)
	after, same := now.(*corev1.Pod)
	return ok && same && before.UID != after.UID
}

func (c Change) name() string {
	if c.Node != nil {
		return c.Node.Name
	}
	return c.Pod.Name
}

// drain calls changed with what there is, and then whenever there is something, until ctx ends.
func (p *pending) drain(ctx context.Context, changed func([]Change) error) error {
	for {
		p.mu.Lock()
		changes := p.changes
		p.changes = nil
		p.mu.Unlock()
		if err := changed(changes); err != nil {
			return err
		}
		select {
		case <-p.signal:
		case <-ctx.Done():
			return nil
		}
	}
}
