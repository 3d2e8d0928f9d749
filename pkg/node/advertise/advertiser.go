// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package advertise keeps this node's object in the API server in step with its devices: the annotation
// KubeDevice/DeviceInfo, and the extended resources in its status.
//
// The kubelet fails a pod for good that asks for more of an extended resource than it knows the node to have. So the counts never
// say less than the kubelet may be asked for:
//
//   - A change is published in two patches: first what makes the counts more and the annotation less; then, [Gap] later,
//     what makes the annotation more and the counts less. So no pod is bound to devices before the kubelet has seen them counted,
//     and none are counted no more while a scheduler may still bind pods to them.
//   - A count does not fall below what the node's pods ask for that are not over, see [Pods]: a kubelet that starts admits all of
//     them anew.
//
// Whatever else changes the node (a kubelet that registers an empty device-plugins folder sets all extended resources to zero) is
// noticed by a watch and put right. A patch of the node's status subresource carries annotation and resources; it touches
// nothing that is not ours, and it needs no rights beyond the kubelet's own: NodeRestriction lets a node patch itself.
package advertise

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

// fieldManager is who the API server says made the change.
const fieldManager = "kubecri"

// jitter is by how much of itself a pause may be longer, so that the nodes of a cluster do not come back all at once.
const jitter = 0.5

// errNotYet is the state before the first comparison.
var errNotYet = errors.New("the node's devices were not published yet")

// Source tells what the node has. *plugins.Manager is one.
type Source interface {
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
	Synced() <-chan struct{}
}

// Pods tells what the node's pods ask for. *pods.Registry is one.
type Pods interface {
	// Counts returns how many of each extended resource the node's pods that are not over ask for; whether that is known; and a
	// channel that is closed when it may be no longer so. While it is not known no count falls.
	Counts() (counts map[string]int64, known bool, changed <-chan struct{})
}

// Options tune an Advertiser; the zero value is what production uses.
type Options struct {
	// Observe, if set, is told of each patch.
	Observe func(err error)
	// Refuse, if set, is told why an inventory cannot be published at all, such as its size: once, until that changes.
	Refuse func(err error)
	// Published, if set, is told which extended resources each state of the node says are of devices, before any of them is
	// taken away: what kubecri published in an earlier life, maybe. The names are sorted.
	Published func(names []string)
	// Pods, if set, tells below what no count falls.
	Pods Pods
	// Retry is the pause after the first failure; it doubles up to a minute, with jitter. A change of the node or of what it
	// has cuts the pause down to one like the first. Zero means half a second.
	Retry time.Duration
}

// Advertiser publishes the devices of one node. All methods are safe for concurrent use.
type Advertiser struct {
	nodeName string
	source   Source
	options  Options

	mu    sync.Mutex
	err   error     // outcome of the last comparison
	right time.Time // when a comparison last was good; zero before
}

// New returns an advertiser for the node of that name; call Run to start it.
func New(nodeName string, source Source, options Options) *Advertiser {
	if options.Retry == 0 {
		options.Retry = time.Second / 2
	}
	return &Advertiser{nodeName: nodeName, source: source, options: options, err: errNotYet}
}

// Check returns an error while the node is not known to be published as it is. The first patch of a change changes nothing of that.
func (a *Advertiser) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Published returns when the node was last known to be published as it is, or the zero time. A node that stays as it is is
// looked at whenever something else on it changes.
func (a *Advertiser) Published() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.right
}

// Run watches the node, and publishes with the client, until ctx is done. Before it publishes it waits for the plugins, so
// that a restart does not make devices vanish for a moment.
func (a *Advertiser) Run(ctx context.Context, client kubernetes.Interface) {
	ctx, cancel := context.WithCancel(ctx)
	nodes := make(chan *corev1.Node)
	var watching sync.WaitGroup
	watching.Go(func() { watchNode(ctx, client, a.nodeName, nodes) })
	defer watching.Wait()
	defer cancel()
	(&follower{Advertiser: a, client: client}).run(ctx, nodes)
}

// settle notes the outcome of a comparison, which is whole if nothing is left for a second patch, and reports whether it is a good
// one.
func (a *Advertiser) settle(ctx context.Context, whole bool, err error) bool {
	if err == nil && !whole {
		return true // as it was, for a moment
	}
	if a.note(err) && err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The node's devices are not published; it is tried again", "node", a.nodeName)
		if r := (*refusal)(nil); errors.As(err, &r) && a.options.Refuse != nil {
			a.options.Refuse(err)
		}
	}
	return err == nil
}

// note keeps an outcome and reports whether it is another than the last.
func (a *Advertiser) note(err error) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	news = err == nil || a.err == nil || a.err.Error() != err.Error()
	if a.err = err; err == nil {
		a.right = time.Now()
	}
	return news
}

// refusal is the error of an inventory that cannot be published, whatever the API server says.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }
