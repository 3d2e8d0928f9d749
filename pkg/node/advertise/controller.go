// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// controller updates the Node object when the inventory changes. It belongs to one goroutine.
type controller struct {
	*Advertiser
	client kubernetes.Interface

	node  *corev1.Node // the newest known state, nil while there is no node
	steps *steps       // of that node, nil before the first comparison

	undescribed []string // devices whose attributes are left out of what is published
}

// run compares the node with the inventory until ctx is done: whenever one of them or the pods'
// requests change, when a second patch is due, and after a failure.
func (f *controller) run(ctx context.Context, nodes <-chan *corev1.Node) {
	backoff := f.freshBackoff()
	var retry, second delay
	defer retry.end()
	defer second.end()
	synced := f.source.Synced()
	for {
		inventory, changed := f.source.Inventory()
		requested, known, requestsChanged := f.requested()
		holders, holdersChanged := f.holders()
		runtime, runtimeChanged := f.runtime()
		unhealthy, healthChanged := f.unhealthy()
		replacements, replacementsChanged := f.replacements()
		enforcement, enforcementChanged := f.enforcement()
		usage, usageChanged := f.usage()
		if f.node != nil && !retry.on {
			second.end()
			var due time.Time
			var err error
			if synced == nil {
				due, err = f.compare(ctx, inventory, requested, known, reports{
					holders, unhealthy, replacements, enforcement, usage, runtime,
				})
			} else {
				err = f.restore(ctx, requested)
			}
			if f.record(ctx, synced == nil && due.IsZero(), err) {
				backoff = f.freshBackoff()
			} else {
				retry.begin(backoff.Step())
			}
			if !due.IsZero() {
				second.begin(time.Until(due))
			}
		}
		select {
		case <-synced:
			synced = nil
		case node := <-nodes:
			f.refresh(ctx, node)
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-changed:
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-requestsChanged:
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-holdersChanged:
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-healthChanged:
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-replacementsChanged:
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-enforcementChanged:
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-usageChanged: // nothing else waits for it
		case <-runtimeChanged:
			retry.shorten(wait.Jitter(f.options.Retry, jitter))
		case <-second.channel():
			second.end()
			retry.end() // of holders that cannot be reported: nothing else leaves both on
		case <-retry.channel():
			retry.end()
		case <-ctx.Done():
			return
		}
	}
}

// refresh takes a state of the node from the watch, nil if it is deleted.
func (f *controller) refresh(ctx context.Context, node *corev1.Node) {
	before := f.node
	f.node = later(before, node)
	if f.node == nil || before != nil && before.UID != f.node.UID {
		f.steps = nil
	}
	if f.node != nil && f.options.Names != nil {
		f.options.Names.NotePublished(publishedNames(f.node))
	}
	if f.node != nil && f.options.Health != nil {
		f.options.Health.Seed(ctx, f.node.Annotations[deviceinfo.UnhealthyAnnotation])
	}
	if f.node != nil && f.options.Taints != nil {
		f.options.Taints.Set(ctx, f.node.Annotations[deviceinfo.DeviceTaintsAnnotation])
	}
}

// requested returns what pods request, and whether that is known.
func (f *controller) requested() (counts map[string]int64, known bool, changed <-chan struct{}) {
	if f.options.Pods == nil {
		return nil, true, nil
	}
	return f.options.Pods.Counts()
}

// holders returns what the node has to report of holders, or nil if that is not known.
func (f *controller) holders() (report *holdersReport, changed <-chan struct{}) {
	if f.options.Holders == nil {
		return nil, nil
	}
	list, known, changed := f.options.Holders.Holders()
	if !known {
		return nil, changed
	}
	return &holdersReport{list}, changed
}

// unhealthy returns what the node has to say of its unhealthy devices: nil while that is not known.
func (f *controller) unhealthy() (report *healthReport, changed <-chan struct{}) {
	if f.options.Health == nil {
		return nil, nil
	}
	list, known, changed := f.options.Health.Unhealthy()
	if !known {
		return nil, changed
	}
	return &healthReport{list}, changed
}

// replacements returns what the node requests: nil while that is not known.
func (f *controller) replacements() (report *replacementsReport, changed <-chan struct{}) {
	if f.options.Replacements == nil {
		return &replacementsReport{}, nil
	}
	list, known, changed := f.options.Replacements.Wanted()
	if !known {
		return nil, changed
	}
	return &replacementsReport{list}, changed
}

// enforcement returns what the node has to say of how it holds containers to their shares: nil
// while that is not known.
func (f *controller) enforcement() (report *enforcementReport, changed <-chan struct{}) {
	if f.options.Enforcement == nil {
		return &enforcementReport{}, nil
	}
	now, changed := f.options.Enforcement.ShareEnforcement()
	if now == nil {
		return nil, changed
	}
	return &enforcementReport{*now}, changed
}

// usage returns what the node has to say of the usage of its devices: nil while that is not known.
func (f *controller) usage() (report *usageReport, changed <-chan struct{}) {
	if f.options.Usage == nil {
		return &usageReport{}, nil
	}
	usage, changed := f.options.Usage.Usage()
	if usage == nil {
		return nil, changed
	}
	return &usageReport{usage}, changed
}

// runtime returns what the node has to say of its runtime: nothing while that is not known.
func (f *controller) runtime() (annotations map[string]string, changed <-chan struct{}) {
	required := ""
	if f.options.Runtime != nil {
		var enforced, known bool
		enforced, known, changed = f.options.Runtime.Enforced()
		if !known {
			return nil, changed
		}
		if enforced {
			required = deviceinfo.NRIPlugin
		}
	}
	return map[string]string{deviceinfo.RequiredPluginAnnotation: required}, changed
}

func (f *controller) freshBackoff() wait.Backoff {
	return wait.Backoff{Duration: f.options.Retry, Factor: 2, Jitter: jitter, Steps: 8, Cap: time.Minute}
}

// restore publishes the counts in the node's annotation again, while the inventory is not synced: a
// kubelet that starts may have set them to zero, and admits all pods again.
func (f *controller) restore(ctx context.Context, requested map[string]int64) error {
	info := published(f.node)
	if info == nil {
		return nil
	}
	return f.patch(ctx, nil, newWanted(f.node, info, f.options.VirtualDevices, requested, false).published())
}

// reports are what the node's annotations say next to the inventory. What is nil stays as it is.
type reports struct {
	holders      *holdersReport
	unhealthy    *healthReport
	replacements *replacementsReport
	enforcement  *enforcementReport
	usage        *usageReport
	runtime      map[string]string
}

// compare publishes what may be published of the inventory now, and returns when the rest is due,
// or the zero time. Holders that cannot be published do not keep the inventory from being so.
func (f *controller) compare(
	ctx context.Context, inventory *plugins.Inventory, requested map[string]int64, known bool, reports reports,
) (due time.Time, err error) {
	var w, shown wanted
	var left []omission
	var value string
	for _, bytes := range []int{deviceinfo.MaxBytes, deviceinfo.MaxBytes - spareBytes} {
		var info *types.NodeInfo
		if info, left, err = fit(f.node, inventory, bytes); err != nil {
			break
		} else if len(left) > 0 && bytes == deviceinfo.MaxBytes {
			continue // with room to spare, then
		}
		w = newWanted(f.node, info, f.options.VirtualDevices, requested, known)
		if f.steps == nil {
			f.steps = newSteps(firstStep(f.node, w))
		}
		// The first patch may take more than the second.
		shown = f.steps.next(time.Now(), w)
		if value, err = annotation(f.node, shown.info); err == nil {
			break
		}
	}
	if err != nil {
		return time.Time{}, &refusal{fmt.Errorf("%w; what was published before stays", err)}
	}
	f.omit(ctx, left)
	annotations := map[string]string{deviceinfo.Annotation: value}
	if maps.Copy(annotations, reports.runtime); value == "" {
		annotations[deviceinfo.RequiredPluginAnnotation] = "" // it is about devices
	}
	unreported := reports.holders.addTo(annotations, f.node)
	reports.replacements.addTo(annotations, f.node)
	reports.unhealthy.addTo(annotations, f.node)
	reports.enforcement.addTo(annotations, f.node, shown.info)
	attributes := attributesReport{inventory.Attributes}
	f.noteUndescribed(ctx, attributes.addTo(annotations, f.node, shown.info))
	reports.usage.addTo(annotations, f.node, shown.info)
	if err := f.patch(ctx, annotations, shown.published()); err != nil {
		return time.Time{}, err
	}
	due = f.steps.done(time.Now(), w)
	if unreported != nil {
		return due, &refusal{unreported}
	}
	return due, nil
}

// noteUndescribed logs which devices' attributes do not fit, when these are others than before.
func (f *controller) noteUndescribed(ctx context.Context, left []string) {
	if !slices.Equal(f.undescribed, left) && len(left) > 0 {
		klog.FromContext(ctx).Info("Attributes of some devices do not fit into the node's annotations; "+
			"everything else of the devices is published. Let the device plugins report fewer or shorter attributes",
			logkey.Node, f.nodeName, logkey.LeftOut, left)
	}
	f.undescribed = left
}

// patch publishes the annotations and the counts, unless the node has them or the kubelet counts.
func (f *controller) patch(
	ctx context.Context, annotations map[string]string, counts map[corev1.ResourceName]int64,
) error {
	body, err := patch(f.node, annotations, counts, f.options.Kubelet)
	if err != nil {
		return &refusal{err}
	}
	if body == nil {
		return nil
	}
	patched, err := f.client.CoreV1().Nodes().Patch(ctx, f.nodeName, apitypes.MergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if f.options.Metrics != nil {
		f.options.Metrics.ObservePatch(err)
	}
	if err != nil {
		return fmt.Errorf("publish the devices of node %q: %w", f.nodeName, err)
	}
	f.node = patched
	klog.FromContext(ctx).V(2).Info("Published the node's devices", logkey.Node, f.nodeName, logkey.ExtendedResources,
		len(counts))
	return nil
}

// delay is the time before a retry. The zero value is over. It belongs to one goroutine.
type delay struct {
	on    bool
	until time.Time
	timer *time.Timer
}

// begin makes the delay last for d from now.
func (p *delay) begin(d time.Duration) {
	p.end()
	p.on, p.until, p.timer = true, time.Now().Add(d), time.NewTimer(d)
}

// shorten reduces a delay that is on to at most d from now. It never extends it.
func (p *delay) shorten(d time.Duration) {
	if p.on && time.Until(p.until) > d {
		p.begin(d)
	}
}

// channel returns a channel that receives when the delay ends, or nil if it is over.
func (p *delay) channel() <-chan time.Time {
	if !p.on {
		return nil
	}
	return p.timer.C
}

// end ends the delay.
func (p *delay) end() {
	if p.on {
		p.timer.Stop()
	}
	p.on = false
}
