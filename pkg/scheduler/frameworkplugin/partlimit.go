// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// partLimit is how much of devices a pod may hold by the quotas that count parts of devices, such
// as memory of GPUs.
//
// The API server adds up what pods write. That is for each device what a container writes once, and
// says nothing of requests by annotation and of whole devices. So it is at most what pods hold, and
// the limit is for what they hold: see [allocation.Set.PartsHeld].
type partLimit struct {
	quotas []partQuota
	// exact says that the pod is known to hold no more than the quotas allow, on any node.
	exact bool
}

// partQuota is what one quota allows of one extended resource, in base units.
type partQuota struct {
	quota      *v1.ResourceQuota
	counted    names.Counted
	hard, used int64
}

// exceeded says which of the parts that the pod would hold are more than the limit; empty if none
// are.
func (l *partLimit) exceeded(held sdk.ResourceList) string {
	for _, q := range l.quotas {
		if held[q.counted.Name] > q.hard-min(q.hard, q.used) {
			return q.text(held[q.counted.Name])
		}
	}
	return ""
}

// text says that a pod would hold more than the quota allows.
func (q *partQuota) text(held int64) string {
	in := func(quantity int64) int64 { // rounded up
		return quantity/q.counted.Unit + min(1, quantity%q.counted.Unit)
	}
	text := fmt.Sprintf("would give the pod %d of %s on all of its devices together: quota %q of namespace %q allows "+
		"%d", in(held), q.counted.Name, q.quota.Name, q.quota.Namespace, in(q.hard))
	if held > q.hard {
		return text + ": request less, or raise the quota"
	}
	return fmt.Sprintf("%s, and its other pods hold %d: the pod waits until they hold less", text, in(q.used))
}

// partLimit returns the limit for a pod, or nil if no quota counts parts of what it requests. It
// refuses a pod that would hold more on each node.
func (p *Plugin) partLimit(pod *v1.Pod, request *request.Request, nodes []fwk.NodeInfo) (*partLimit, *fwk.Status) {
	if p.quotaMode == QuotaWarn {
		return nil, nil
	}
	least, exact, none := p.schedulers.RequestedParts(request)
	if none {
		return nil, nil
	}
	counting, refused := p.countingQuotas(pod, "the pod requests devices of which quotas may count parts")
	if refused != nil {
		if request.ByCountOnly() { // the API server counts the devices themselves
			return nil, nil
		}
		return nil, refused
	}
	limit := &partLimit{quotas: p.partQuotas(counting), exact: exact}
	if len(limit.quotas) == 0 {
		return nil, nil
	}
	for other, held := range p.nodes.PartsHeld(nodes, pod.Namespace) {
		if other.UID == pod.UID {
			continue
		}
		for i := range limit.quotas {
			if err := limit.quotas[i].add(other, held); err != nil {
				return nil, fwk.AsStatus(err)
			}
		}
	}
	if text := limit.exceeded(least); text != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "each node "+text)
	}
	return limit, nil
}

// partQuotas returns what quotas allow of parts of devices.
func (p *Plugin) partQuotas(counting []*v1.ResourceQuota) (list []partQuota) {
	for _, quota := range counting {
		for _, counted := range p.schedulers.CountedParts() {
			for _, prefix := range quotaPrefixes {
				if hard, ok := quota.Spec.Hard[v1.ResourceName(prefix+string(counted.Name))]; ok {
					allowed := min(max(0, hard.Value()), math.MaxInt64/counted.Unit) * counted.Unit
					list = append(list, partQuota{quota: quota, counted: counted, hard: allowed})
				}
			}
		}
	}
	return list
}

// add adds what a pod holds, if the quota counts the pod.
func (q *partQuota) add(pod *v1.Pod, held sdk.ResourceList) error {
	quantity := held[q.counted.Name]
	if quantity == 0 {
		return nil
	}
	counts, err := inScope(q.quota, pod)
	if err != nil {
		return fmt.Errorf("quota %q: %w", q.quota.Name, err)
	}
	if counts {
		q.used += min(quantity, math.MaxInt64-q.used)
	}
	return nil
}

// countParts reports whether a quota of a namespace may count parts of devices.
func (q *quotas) countParts(namespace string, parts []names.Counted) bool {
	select {
	case <-q.known:
	default:
		return false
	}
	all, err := q.lister.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return true
	}
	for _, quota := range all {
		for _, counted := range parts {
			if naming([]*v1.ResourceQuota{quota}, counted.Name) != nil {
				return true
			}
		}
	}
	return false
}

// heldOn returns what a pod with an allocation on a node would hold of parts of devices.
func (p *Plugin) heldOn(
	nodeName string, pod *v1.Pod, allocated *sdk.PodInfo, request *request.Request,
) sdk.ResourceList {
	return p.nodes.PartsOf(nodeName, allocation.NewHolder(string(pod.UID), allocated, request.Containers))
}
