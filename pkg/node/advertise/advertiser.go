// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package advertise publishes this node's devices in its Node object: the annotation
// KubeDevice/DeviceInfo, and the extended resources in its status. Where some pods hold devices
// that the scheduler did not allocate and seal, the annotation KubeDevice/Holders says so, in the
// same patches. KubeDevice/Unhealthy says which devices are unhealthy and why, and
// KubeDevice/Replacements for which containers the node requests other devices. So does
// KubeDevice/RequiredPlugin where the container runtime refuses containers that require kubecri
// while it is away. KubeDevice/ShareEnforcement says by what containers are held to their shares of
// devices, KubeDevice/Attributes describes the devices, and KubeDevice/Usage says how much of them
// is used, as far as the others leave room. Extended resources that the kubelet publishes by itself
// stay as they are.
//
// The kubelet rejects a pod for good that requests more of an extended resource than the kubelet
// knows the node to have. So the published counts are never less than what the kubelet may be
// requested:
//
// - A change is published in two patches. The first one only raises counts and lowers the
// annotation. The second one follows [Gap] later; it raises the annotation and lowers counts. So no
// pod is bound to devices that the kubelet has not counted yet, and no count falls while a
// scheduler may still bind pods to the devices. - A count does not fall below what the node's
// active pods request, see [Pods]: a kubelet that starts admits all of them again.
//
// What does not fit in the annotations, or cannot be encoded, is left out: all that one source has.
// The devices of the others are published as if it were not there.
//
// A watch notices what others change on the node, and the advertiser restores it: a kubelet that
// finds no device plugins sets all extended resources to zero. One patch of the node's status
// subresource has both annotation and resources. It changes nothing that kubecri does not own, and
// needs no rights beyond the kubelet's: NodeRestriction lets a node patch itself.
package advertise

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// fieldManager identifies kubecri in the managed fields of the node.
const fieldManager = "kubecri"

// jitter is the largest extension of a retry's delay, as a part of it: the nodes of a cluster
// should not retry together.
const jitter = 0.5

// errNotYet is the state before the first comparison.
var errNotYet = errors.New("the node's devices are not published yet")

// Source has the node's inventory. *plugins.Manager is one.
type Source interface {
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
	Synced() <-chan struct{}
}

// Pods knows what the node's pods request. *pods.Registry does.
type Pods interface {
	// Counts returns how many of each extended resource the node's active pods request; whether
	// that is known; and a channel that is closed when this may have changed. While it is not known
	// no count falls.
	Counts() (counts map[string]int64, known bool, changed <-chan struct{})
}

// Holders knows the pods whose devices only the node knows. *holders.Controller implements it.
type Holders interface {
	// Holders returns the pods; whether they are known, without which the node's annotation stays
	// as it is; and a channel that is closed when any of this may have changed.
	Holders() (list []deviceinfo.Holder, known bool, changed <-chan struct{})
}

// Health knows the node's unhealthy devices. *devicehealth.Tracker does.
type Health interface {
	// Seed takes the annotation KubeDevice/Unhealthy that a state of the node has.
	Seed(ctx context.Context, annotation string)
	// Unhealthy returns the devices, the most important ones first; whether they are known, without
	// which the node's annotation stays as it is; and a channel that is closed when any of this may
	// have changed.
	Unhealthy() (list []deviceinfo.UnhealthyDevice, known bool, changed <-chan struct{})
}

// Replacements knows for which pods the node requests other devices. *failover.Controller
// implements it.
type Replacements interface {
	// Wanted returns the pods; whether they are known, without which the node's annotation stays as
	// it is; and a channel that is closed when any of this may have changed.
	Wanted() (list []deviceinfo.Replacement, known bool, changed <-chan struct{})
}

// Enforcement knows by what the node holds containers to their shares. *policing.Enforcement
// implements it.
type Enforcement interface {
	// ShareEnforcement returns what to publish; nil while nothing is known, in which the node's
	// annotation stays as it is; and a channel that is closed when that is no longer so.
	ShareEnforcement() (now *deviceinfo.ShareEnforcement, changed <-chan struct{})
}

// Usage knows how much of the node's devices is used. *usage.Publisher implements it.
type Usage interface {
	// Usage returns what to publish; nil while nothing is known, in which the node's annotation
	// stays as it is, and with the zero time for no annotation; and a channel that is closed when
	// that is no longer so.
	Usage() (usage *deviceinfo.Usage, changed <-chan struct{})
}

// Runtime knows what the node's container runtime does. *nri.Registration is one.
type Runtime interface {
	// Enforced reports whether the runtime refuses containers that require an NRI plugin which is
	// not there; whether that is known, without which the node's annotation stays as it is; and a
	// channel that is closed when any of this may have changed.
	Enforced() (enforced, known bool, changed <-chan struct{})
}

// Metrics counts patches.
type Metrics interface {
	// ObservePatch is called after each patch.
	ObservePatch(err error)
	// ShowOmitted is called with the labels of the sources whose devices are left out of what is
	// published, sorted, whenever they change.
	ShowOmitted(labels []string)
}

// Events writes events on the node. It must not block.
type Events interface {
	// WarnOfInventory is called when an inventory or a part of it can never be published, for
	// example because of its size: once, until the reason changes.
	WarnOfInventory(err error)
}

// Names knows the names of the node's device resources. *pods.Registry does.
type Names interface {
	// NotePublished takes the extended resources that each state of the node lists as devices,
	// before any of them is removed. An earlier kubecri may have published them. The names are
	// sorted.
	NotePublished(names []string)
}

// Taints knows the taints of the node's devices. *devicehealth.Taints does.
type Taints interface {
	// Set takes the annotation KubeDevice/DeviceTaints that a state of the node has.
	Set(ctx context.Context, annotation string)
}

// Kubelet is the node's kubelet. *devicemanager.Manager implements it.
type Kubelet interface {
	// KubeletCounts reports whether the kubelet publishes an extended resource whose devices the
	// inventory has.
	KubeletCounts(extended types.ResourceName) bool
}

// Options tune an Advertiser; the zero value is what production uses.
type Options struct {
	// Metrics, if set, counts patches.
	Metrics Metrics
	// Events, if set, writes events on the node.
	Events Events
	// Names, if set, is notified of the published extended resources.
	Names Names
	// Pods, if set, has the lower limits of counts.
	Pods Pods
	// Holders, if set, has what the annotation KubeDevice/Holders says.
	Holders Holders
	// Health, if set, has what the annotation KubeDevice/Unhealthy says.
	Health Health
	// Taints, if set, takes what the annotation KubeDevice/DeviceTaints says. Administrators write
	// it.
	Taints Taints
	// Replacements, if set, has what the annotation KubeDevice/Replacements says. Without, the node
	// has no such annotation.
	Replacements Replacements
	// Enforcement, if set, has what the annotation KubeDevice/ShareEnforcement says. Without, the
	// node has no such annotation.
	Enforcement Enforcement
	// Usage, if set, has what the annotation KubeDevice/Usage says. Without, the node has no such
	// annotation.
	Usage Usage
	// Runtime has what the annotation KubeDevice/RequiredPlugin says. Without, the node has no such
	// annotation.
	Runtime Runtime
	// Kubelet is the node's kubelet; nil if it publishes no extended resource of the inventory.
	Kubelet Kubelet
	// VirtualDevices are how often each device counts.
	VirtualDevices VirtualDevices
	// Retry is the delay after the first failure. It doubles up to a minute, with jitter. A change
	// of the node or of its inventory reduces the delay to the first one. Zero means half a second.
	Retry time.Duration
}

// Advertiser publishes the devices of one node. All methods are safe for concurrent use.
type Advertiser struct {
	nodeName string
	source   Source
	options  Options

	mu      sync.Mutex
	err     error      // of the last comparison
	right   time.Time  // of the last comparison without an error; zero before
	omitted []omission // what is left out of what is published, by label
}

// New returns an advertiser for the node of that name; call Run to start it.
func New(nodeName string, source Source, options Options) *Advertiser {
	if options.Retry == 0 {
		options.Retry = time.Second / 2
	}
	return &Advertiser{nodeName: nodeName, source: source, options: options, err: errNotYet}
}

// Check returns an error while it is not known that the Node object has the inventory, and while a
// part of the inventory is left out. The first patch of a change does not affect this.
func (a *Advertiser) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.err, a.errOmitted())
}

// Published returns when the Node object was last known to have the inventory, as far as that can
// be published, or the zero time. It is compared whenever anything on the node changes.
func (a *Advertiser) Published() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.right
}

// Run watches the node and publishes with the client until ctx is done. It waits until the
// inventory is synced, so that devices do not vanish during a restart.
func (a *Advertiser) Run(ctx context.Context, client kubernetes.Interface) {
	ctx, cancel := context.WithCancel(ctx)
	nodes := make(chan *corev1.Node)
	var watching sync.WaitGroup
	watching.Go(func() { watchNode(ctx, client, a.nodeName, nodes) })
	defer watching.Wait()
	defer cancel()
	(&controller{Advertiser: a, client: client}).run(ctx, nodes)
}

// record keeps the outcome of a comparison, which is complete if no second patch is due, and
// reports whether it succeeded.
func (a *Advertiser) record(ctx context.Context, complete bool, err error) bool {
	if err == nil && !complete {
		return true // the state stays until the second patch
	}
	if a.update(err) && err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot publish the node's devices; will retry", logkey.Node, a.nodeName)
		if r := (*refusal)(nil); errors.As(err, &r) && a.options.Events != nil {
			a.options.Events.WarnOfInventory(err)
		}
	}
	return err == nil
}

// update keeps an outcome and reports whether it differs from the last one.
func (a *Advertiser) update(err error) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = err == nil || a.err == nil || a.err.Error() != err.Error()
	if a.err = err; err == nil {
		a.right = time.Now()
	}
	return changed
}

// refusal is the error of an inventory that can never be published.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }
