// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failover gives containers of bound pods other devices of their node, where the node asks
// for that: see deviceinfo.ReplacementsAnnotation. It writes the next generation of the pod's
// allocation, sealed, into the pod's annotations. The node takes it from there.
//
// What was asked and what was answered is in the objects of the API server alone: a node asks for
// more than one generation, and the pod's seal names the one that it has. So another scheduler goes
// on where this one ends. Only what is reserved between the choice and the pod's change is kept
// here.
package failover

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

const (
	// retryPause is the time between two tries for a node that asks: something may become free.
	retryPause = time.Second
	// conflictPause is the same after the pod was changed by somebody else meanwhile.
	conflictPause = 50 * time.Millisecond
	// keepPause is how long devices stay reserved at least after the pod was changed. When the
	// informer has shown it, the scheduler's own snapshot of the pods shows it long before.
	keepPause = 10 * time.Second
	// latePatch is how long a change that the API server did not answer may still take effect: the
	// server's own limit for a request.
	latePatch = time.Minute
	// requestTimeout is the limit for one request to the API server.
	requestTimeout = 10 * time.Second
)

// Options are what an Engine works with.
type Options struct {
	Schedulers *allocation.Set
	Nodes      *nodestate.Cache
	NodeLister corelisters.NodeLister
	// PodsOn returns the pods that are bound to a node.
	PodsOn func(nodeName string) ([]*v1.Pod, error)
	Client kubernetes.Interface
	// Keys sign and verify allocations.
	Keys     *seal.File
	Recorder events.EventRecorder
	// Leads reports whether this scheduler leads: others answer nothing.
	Leads func() bool
}

// Engine answers nodes. One goroutine runs it.
type Engine struct {
	Options
	queue workqueue.TypedDelayingInterface[string] // names of nodes

	mu       sync.Mutex
	reserved map[types.UID]reserved // what was reserved for pods

	// said is why pods are not given devices, as their events said, by the node that asks. Used by
	// Run only.
	said map[string]map[types.UID]string
}

// reserved is what was reserved for a pod.
type reserved struct {
	node       string
	generation int64 // for which
	until      time.Time
	written    bool // it is known that the pod was changed
}

// New returns an engine; call Follow and Run.
func New(options Options) *Engine {
	return &Engine{
		Options: options, queue: workqueue.NewTypedDelayingQueue[string](), reserved: map[types.UID]reserved{},
		said: map[string]map[types.UID]string{},
	}
}

// Follow follows the nodes of an informer.
func (e *Engine) Follow(nodes cache.SharedIndexInformer) error {
	asks := func(obj any) bool { return obj.(*v1.Node).Annotations[deviceinfo.ReplacementsAnnotation] != "" }
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if asks(obj) {
				e.queue.Add(obj.(*v1.Node).Name)
			}
		},
		UpdateFunc: func(before, now any) {
			if asks(before) || asks(now) {
				e.queue.Add(now.(*v1.Node).Name)
			}
		},
	})
	return err
}

// Run answers until ctx is done.
func (e *Engine) Run(ctx context.Context) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		<-ctx.Done()
		e.queue.ShutDown()
	})
	for {
		name, ended := e.queue.Get()
		if ended {
			return
		}
		if again := e.sync(ctx, name); again > 0 {
			e.queue.AddAfter(name, again)
		}
		e.queue.Done(name)
	}
}

// sync answers a node, and returns after how long to look again, or zero.
func (e *Engine) sync(ctx context.Context, name string) (again time.Duration) {
	again = e.release(name, time.Now())
	sooner := func(pause time.Duration) {
		if again == 0 || pause < again {
			again = pause
		}
	}
	node, err := e.NodeLister.Get(name)
	if err != nil {
		return again
	}
	wanted, err := deviceinfo.DecodeReplacements(node.Annotations[deviceinfo.ReplacementsAnnotation])
	if err != nil {
		klog.FromContext(ctx).Error(err, "A node asks for other devices, and it cannot be read for which pods",
			logkey.Node, klog.KRef("", name))
		return again
	}
	maps.DeleteFunc(e.said[name], func(uid types.UID, _ string) bool {
		return !slices.ContainsFunc(wanted, func(want deviceinfo.Replacement) bool { return want.UID == uid })
	})
	if len(wanted) == 0 {
		delete(e.said, name)
		return again
	}
	sooner(retryPause)
	if !e.Leads() {
		return again
	}
	pods, err := e.PodsOn(name)
	if err != nil {
		return again
	}
	for _, want := range wanted {
		at := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == want.UID })
		if at < 0 || pods[at].DeletionTimestamp != nil {
			continue
		}
		if e.answer(ctx, node, pods[at], want) {
			sooner(conflictPause)
		}
	}
	return again
}

// release ends reservations on the node that are over, and returns when the next one is. One for a
// pod that was changed is not over before the informer has shown that: until then the devices would
// look free.
func (e *Engine) release(node string, now time.Time) (again time.Duration) {
	pods, err := e.PodsOn(node)
	if err != nil {
		return retryPause
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, r := range e.reserved {
		if r.node != node {
			continue
		}
		left := r.until.Sub(now)
		if left <= 0 && r.written && !e.shown(pods, uid, r.generation) {
			left = retryPause
		}
		if left <= 0 {
			e.Nodes.ReleaseMore(r.node, uid)
			delete(e.reserved, uid)
		} else if again == 0 || left < again {
			again = left
		}
	}
	return again
}

// shown reports whether a pod's generation is one of these pods', or a later one. Where that cannot
// be known, or the pod is gone, there is nothing to wait for.
func (e *Engine) shown(pods []*v1.Pod, uid types.UID, generation int64) bool {
	at := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == uid })
	if at < 0 {
		return true
	}
	now, err := e.generationOf(pods[at])
	return err != nil || now >= generation
}

// keep notes that what is reserved for the pod stays so for that long. written says that it is
// known that the pod was changed.
func (e *Engine) keep(node string, uid types.UID, generation int64, pause time.Duration, written bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reserved[uid] = reserved{node, generation, time.Now().Add(pause), written}
}

// drop ends the reservation for the pod.
func (e *Engine) drop(node string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.reserved, uid)
	e.Nodes.ReleaseMore(node, uid)
}

// answered reports whether there is a reservation for a later generation of the pod.
func (e *Engine) answered(uid types.UID, generation int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reserved[uid].generation > generation
}

// tell puts an event on the pod.
func (e *Engine) tell(pod *v1.Pod, reason, format string, details ...any) {
	e.Recorder.Eventf(pod, nil, v1.EventTypeWarning, reason, "Scheduling", format, details...)
}

// refused reports whether the error says that the pod was not changed.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
}
