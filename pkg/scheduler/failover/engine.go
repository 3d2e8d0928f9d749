// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failover allocates other devices of their node to containers of bound pods, on request of
// the node: see deviceinfo.ReplacementsAnnotation. It writes the next generation of the pod's
// allocation, sealed, into the pod's annotations. The node reads it there.
//
// Requests and answers are in the objects of the API server only: a node requests a generation
// after a certain one, and the pod's seal names the current one. So another scheduler continues
// where this one stops. The engine itself keeps only the reservations between the choice of devices
// and the change of the pod.
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
	// retryInterval is the time between two tries for one node: a device may become free.
	retryInterval = time.Second
	// conflictBackoff is the time to the next try after another client has changed the pod.
	conflictBackoff = 50 * time.Millisecond
	// keepReserved is the minimum time that devices stay reserved after the pod's change. By then
	// the scheduler's snapshot of the pods shows a change that the informer has shown.
	keepReserved = 10 * time.Second
	// lateEffect is how long a patch without an answer may still take effect: the API server's own
	// timeout of a request.
	lateEffect = time.Minute
	// requestTimeout is the timeout of one request to the API server.
	requestTimeout = 10 * time.Second
)

// Pods knows the pods of nodes. *frameworkplugin.Shared implements it.
type Pods interface {
	// PodsOn returns the pods that are bound to a node.
	PodsOn(nodeName string) ([]*v1.Pod, error)
}

// Leadership knows whether this scheduler leads. *readapi.Leadership implements it.
type Leadership interface {
	// Leads reports whether this scheduler leads: standbys answer nothing.
	Leads() bool
}

// Options configure an Engine.
type Options struct {
	Schedulers *allocation.Set
	Nodes      *nodestate.Cache
	NodeLister corelisters.NodeLister
	Pods       Pods
	Client     kubernetes.Interface
	// Keys sign and verify allocations.
	Keys       *seal.File
	Recorder   events.EventRecorder
	Leadership Leadership
}

// Engine answers nodes. One goroutine runs it.
type Engine struct {
	Options
	queue workqueue.TypedDelayingInterface[string] // names of nodes

	mu           sync.Mutex
	reservations map[types.UID]reservation // by pod

	// explained has the reason in the last event of each pod without a replacement, by node. Only
	// Run uses it.
	explained map[string]map[types.UID]string
}

// New returns an engine; call Follow and Run.
func New(options Options) *Engine {
	return &Engine{
		Options: options, queue: workqueue.NewTypedDelayingQueue[string](), reservations: map[types.UID]reservation{},
		explained: map[string]map[types.UID]string{},
	}
}

// Follow follows the nodes of an informer.
func (e *Engine) Follow(nodes cache.SharedIndexInformer) error {
	hasRequest := func(obj any) bool { return obj.(*v1.Node).Annotations[deviceinfo.ReplacementsAnnotation] != "" }
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if hasRequest(obj) {
				e.queue.Add(obj.(*v1.Node).Name)
			}
		},
		UpdateFunc: func(previous, now any) {
			if hasRequest(previous) || hasRequest(now) {
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

// sync answers a node, and returns the time to the next sync, or zero.
func (e *Engine) sync(ctx context.Context, name string) (again time.Duration) {
	again = e.release(name, time.Now())
	sooner := func(interval time.Duration) {
		if again == 0 || interval < again {
			again = interval
		}
	}
	node, err := e.NodeLister.Get(name)
	if err != nil {
		return again
	}
	wanted, err := deviceinfo.DecodeReplacements(node.Annotations[deviceinfo.ReplacementsAnnotation])
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the replacements that a node requests",
			logkey.Node, klog.KRef("", name))
		return again
	}
	maps.DeleteFunc(e.explained[name], func(uid types.UID, _ string) bool {
		return !slices.ContainsFunc(wanted, func(want deviceinfo.Replacement) bool { return want.UID == uid })
	})
	if len(wanted) == 0 {
		delete(e.explained, name)
		return again
	}
	sooner(retryInterval)
	if !e.Leadership.Leads() {
		return again
	}
	pods, err := e.Pods.PodsOn(name)
	if err != nil {
		return again
	}
	for _, want := range wanted {
		index := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == want.UID })
		if index < 0 || pods[index].DeletionTimestamp != nil {
			continue
		}
		if e.answer(ctx, node, pods[index], want) {
			sooner(conflictBackoff)
		}
	}
	return again
}

// release removes expired reservations on the node, and returns the time to the next expiry. A
// reservation for a changed pod lasts until the informer shows the change: until then the devices
// would seem free.
func (e *Engine) release(node string, now time.Time) (again time.Duration) {
	pods, err := e.Pods.PodsOn(node)
	if err != nil {
		return retryInterval
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, r := range e.reservations {
		if r.node != node {
			continue
		}
		left := r.left(now, func() bool { return e.shown(pods, uid, r.generation) })
		if left <= 0 {
			e.Nodes.ReleaseMore(r.node, uid)
			delete(e.reservations, uid)
		} else if again == 0 || left < again {
			again = left
		}
	}
	return again
}

// shown reports whether these pods include the pod with this generation or a later one. It also
// returns true if the pod is gone or its generation cannot be verified, as nothing is left to wait
// for.
func (e *Engine) shown(pods []*v1.Pod, uid types.UID, generation int64) bool {
	index := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == uid })
	if index < 0 {
		return true
	}
	now, err := e.generationOf(pods[index])
	return err != nil || now >= generation
}

// reserve has the pod's devices reserved for this duration, in that state of its replacement.
func (e *Engine) reserve(node string, uid types.UID, generation int64, state state, duration time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reservations[uid] = reservation{state, node, generation, time.Now().Add(duration)}
}

// drop removes the reservation for the pod.
func (e *Engine) drop(node string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.reservations, uid)
	e.Nodes.ReleaseMore(node, uid)
}

// answered reports whether the pod has a reservation for a later generation.
func (e *Engine) answered(uid types.UID, generation int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reservations[uid].generation > generation
}

// event writes an event on the pod.
func (e *Engine) event(pod *v1.Pod, reason, format string, details ...any) {
	e.Recorder.Eventf(pod, nil, v1.EventTypeWarning, reason, "Scheduling", format, details...)
}

// unchanged reports whether the error means that the pod was not changed.
func unchanged(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
}
