// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// follower makes the node follow the inventory. It is one goroutine's.
type follower struct {
	*Advertiser
	client kubernetes.Interface

	node  *corev1.Node // as last seen, nil while there is none
	steps *steps       // of that node, nil before the first
}

// run compares whenever the node, the inventory or what pods ask for changes, when the second patch of a change is due, and after
// a failure, until ctx is done.
func (f *follower) run(ctx context.Context, nodes <-chan *corev1.Node) {
	backoff := f.freshBackoff()
	var retry, second pause
	defer retry.end()
	defer second.end()
	settled := f.source.Synced()
	for {
		inventory, changed := f.source.Inventory()
		asked, known, askedChanged := f.asked()
		if f.node != nil && !retry.on {
			second.end()
			var due time.Time
			var err error
			if settled == nil {
				due, err = f.compare(ctx, inventory.Node, asked, known)
			} else {
				err = f.restore(ctx, asked)
			}
			if f.settle(ctx, settled == nil && due.IsZero(), err) {
				backoff = f.freshBackoff()
			} else {
				retry.begin(backoff.Step())
			}
			if !due.IsZero() {
				second.begin(time.Until(due))
			}
		}
		select {
		case <-settled:
			settled = nil
		case seen := <-nodes:
			f.see(seen)
			retry.cut(wait.Jitter(f.options.Retry, jitter))
		case <-changed:
			retry.cut(wait.Jitter(f.options.Retry, jitter))
		case <-askedChanged:
			retry.cut(wait.Jitter(f.options.Retry, jitter))
		case <-second.over():
			second.end()
		case <-retry.over():
			retry.end()
		case <-ctx.Done():
			return
		}
	}
}

// see takes a state of the node that the watch tells, nil if it is deleted.
func (f *follower) see(node *corev1.Node) {
	before := f.node
	f.node = later(before, node)
	if f.node == nil || before != nil && before.UID != f.node.UID {
		f.steps = nil
	}
	if f.node != nil && f.options.Published != nil {
		f.options.Published(publishedNames(f.node))
	}
}

// asked returns what pods ask for, and whether that is all.
func (f *follower) asked() (counts map[string]int64, known bool, changed <-chan struct{}) {
	if f.options.Pods == nil {
		return nil, true, nil
	}
	return f.options.Pods.Counts()
}

func (f *follower) freshBackoff() wait.Backoff {
	return wait.Backoff{Duration: f.options.Retry, Factor: 2, Jitter: jitter, Steps: 8, Cap: time.Minute}
}

// restore puts back the counts that the annotation tells of, before anybody knows what the node has now: a kubelet that starts
// may have set them to zero, and is about to admit all pods anew.
func (f *follower) restore(ctx context.Context, asked map[string]int64) error {
	info := published(f.node)
	if info == nil {
		return nil
	}
	return f.patch(ctx, f.node.Annotations[deviceinfo.Annotation], want(f.node, info, asked, false).counts)
}

// compare makes the node in the API server as the inventory wants it at this moment, and returns when more of it is due, or the zero
// time if that is all.
func (f *follower) compare(ctx context.Context, inventory *types.NodeInfo, asked map[string]int64, known bool) (due time.Time, err error) {
	w := want(f.node, inventory, asked, known)
	if f.steps == nil {
		f.steps = newSteps(found(f.node, w))
	}
	// What cannot be published in the end is not begun.
	if _, err := annotation(f.node, w.info); err != nil {
		return time.Time{}, &refusal{err}
	}
	shown := f.steps.next(time.Now(), w)
	value, err := annotation(f.node, shown.info)
	if err != nil {
		return time.Time{}, &refusal{err}
	}
	if err := f.patch(ctx, value, shown.counts); err != nil {
		return time.Time{}, err
	}
	return f.steps.done(time.Now(), w), nil
}

// patch gives the node the annotation and the counts, if it has not.
func (f *follower) patch(ctx context.Context, annotation string, counts map[corev1.ResourceName]int64) error {
	body, err := patch(f.node, annotation, counts)
	if err != nil {
		return &refusal{err}
	}
	if body == nil {
		return nil
	}
	patched, err := f.client.CoreV1().Nodes().Patch(ctx, f.nodeName, apitypes.MergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if f.options.Observe != nil {
		f.options.Observe(err)
	}
	if err != nil {
		return fmt.Errorf("publish the devices of node %q: %w", f.nodeName, err)
	}
	f.node = patched
	klog.FromContext(ctx).V(2).Info("Published the node's devices", "node", f.nodeName, "extendedResources", len(counts))
	return nil
}
