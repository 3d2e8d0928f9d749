// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package advertise keeps this node's object in the API server in step with its devices: the annotation
// KubeDevice/DeviceInfo, and the extended resources in its status.
//
// Whatever else changes the node (the kubelet sets extended resources that are not its own to zero when it registers) is
// noticed by a watch and put right. One patch of the node's status subresource carries annotation and resources; it touches
// nothing that is not ours, and it needs no rights beyond the kubelet's own: NodeRestriction lets a node patch itself.
package advertise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

// fieldManager is who the API server says made the change.
const fieldManager = "kubecri"

// jitter is by how much of itself a pause may be longer, so that the nodes of a cluster do not come back all at once.
const jitter = 0.5

// errNotYet is the state before the first comparison.
var errNotYet = errors.New("the node's devices were not published yet")

// Source tells what the node has. *plugins.Host is one.
type Source interface {
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
	Settled() <-chan struct{}
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

// Check returns an error while the node is not known to be published as it is.
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
	a.follow(ctx, client, nodes)
}

// follow compares whenever the node or the inventory changes, and after a failure.
func (a *Advertiser) follow(ctx context.Context, client kubernetes.Interface, nodes <-chan *corev1.Node) {
	var node *corev1.Node
	backoff := a.freshBackoff()
	var retry pause
	defer retry.end()
	settled := a.source.Settled()
	for {
		inventory, changed := a.source.Inventory()
		if node != nil && settled == nil && !retry.on {
			patched, err := a.compare(ctx, client, node, inventory)
			if patched != nil {
				node = patched
			}
			if a.settle(ctx, err) {
				backoff = a.freshBackoff()
			} else {
				retry.begin(backoff.Step())
			}
		}
		select {
		case <-settled:
			settled = nil
		case seen := <-nodes:
			if node = later(node, seen); node != nil && a.options.Published != nil {
				a.options.Published(published(node.Annotations[deviceinfo.Annotation]))
			}
			retry.cut(wait.Jitter(a.options.Retry, jitter))
		case <-changed:
			retry.cut(wait.Jitter(a.options.Retry, jitter))
		case <-retry.over():
			retry.end()
		case <-ctx.Done():
			return
		}
	}
}

func (a *Advertiser) freshBackoff() wait.Backoff {
	return wait.Backoff{Duration: a.options.Retry, Factor: 2, Jitter: jitter, Steps: 8, Cap: time.Minute}
}

// compare makes the node in the API server as the inventory wants it, and returns the node as it is then if that took a
// patch.
func (a *Advertiser) compare(ctx context.Context, client kubernetes.Interface, node *corev1.Node, inventory *plugins.Inventory) (*corev1.Node, error) {
	w, err := want(inventory.Node)
	if err != nil {
		return nil, &refusal{err}
	}
	body, err := patch(node, w)
	if err != nil {
		return nil, &refusal{err}
	}
	if body == nil {
		return nil, nil
	}
	patched, err := client.CoreV1().Nodes().Patch(ctx, a.nodeName, apitypes.MergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if a.options.Observe != nil {
		a.options.Observe(err)
	}
	if err != nil {
		return nil, fmt.Errorf("publish the devices of node %q: %w", a.nodeName, err)
	}
	klog.FromContext(ctx).V(2).Info("Published the node's devices", "node", a.nodeName, "resources", len(inventory.Node.Capacity))
	return patched, nil
}

// settle notes an outcome and reports whether it is a good one.
func (a *Advertiser) settle(ctx context.Context, err error) bool {
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
