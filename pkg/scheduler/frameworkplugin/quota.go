// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
)

// QuotaMode says which pods are refused that request whole devices beyond their limits. Quotas
// count limits, and know nothing of the annotation. It is a flag's value.
type QuotaMode string

// The modes.
const (
	// QuotaWarn refuses none.
	QuotaWarn QuotaMode = "warn"
	// QuotaEnforce refuses those in a namespace with a ResourceQuota that names the resource. It is
	// the default.
	QuotaEnforce QuotaMode = "enforce"
	// QuotaEverywhere refuses all.
	QuotaEverywhere QuotaMode = "everywhere"
)

// String returns the mode.
func (m *QuotaMode) String() string { return string(*m) }

// Type returns what help texts call the value.
func (*QuotaMode) Type() string { return "mode" }

// Set sets the mode that text names.
func (m *QuotaMode) Set(text string) error {
	modes := []string{string(QuotaWarn), string(QuotaEnforce), string(QuotaEverywhere)}
	if !slices.Contains(modes, text) {
		return fmt.Errorf("must be one of %s", strings.Join(modes, ", "))
	}
	*m = QuotaMode(text)
	return nil
}

// quotaSyncTimeout is how long the first pod that needs the quotas waits for them: they are listed
// then, which takes milliseconds, unless the scheduler has no right to.
const quotaSyncTimeout = 2 * time.Second

// warnedPods is how many pods are remembered for which the event was written.
const warnedPods = 1 << 12

// quotas knows the cluster's ResourceQuotas from the first time that they matter. It is safe for
// concurrent use.
type quotas struct {
	client kubernetes.Interface
	runner runner
	// requeuer activates pods when quotas have changed, and when they have become known.
	requeuer *requeuer

	start  sync.Once
	lister corelisters.ResourceQuotaLister
	known  chan struct{} // closed when they are

	warned *cache.Cache[types.UID, struct{}]
}

func newQuotas(client kubernetes.Interface, runner runner, requeuer *requeuer) *quotas {
	return &quotas{
		client: client, runner: runner, requeuer: requeuer, known: make(chan struct{}),
		warned: cache.New[types.UID, struct{}](warnedPods),
	}
}

// quotasFor returns the quotas that count this pod, and whether they are known. When they are not,
// the pod will be activated. The first call may take quotaSyncTimeout.
func (q *quotas) quotasFor(pod *v1.Pod) (counting []*v1.ResourceQuota, known bool, err error) {
	q.start.Do(func() {
		q.follow()
		select {
		case <-q.known:
		case <-time.After(quotaSyncTimeout):
		}
	})
	select {
	case <-q.known:
	default:
		return nil, false, nil
	}
	all, err := q.lister.ResourceQuotas(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, false, err
	}
	for _, quota := range all {
		counts, err := inScope(quota, pod)
		if err != nil {
			return nil, false, fmt.Errorf("quota %q: %w", quota.Name, err)
		}
		if counts {
			counting = append(counting, quota)
		}
	}
	return counting, true, nil
}

// follow follows the quotas until the plugin is closed.
func (q *quotas) follow() {
	informer := coreinformers.NewResourceQuotaInformer(q.client, metav1.NamespaceAll, 0,
		toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	q.lister = corelisters.NewResourceQuotaLister(informer.GetIndexer())
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, isInInitialList bool) {
			if !isInInitialList {
				q.requeuer.activateAfter(0)
			}
		},
		UpdateFunc: func(before, after any) {
			// The status changes with each pod.
			if !apiequality.Semantic.DeepEqual(before.(*v1.ResourceQuota).Spec, after.(*v1.ResourceQuota).Spec) {
				q.requeuer.activateAfter(0)
			}
		},
		DeleteFunc: func(any) { q.requeuer.activateAfter(0) },
	})
	if err != nil { // only an informer that has stopped takes no handler
		return
	}
	q.runner.Run(func(ctx context.Context) { informer.RunWithContext(ctx) })
	q.runner.Run(func(ctx context.Context) {
		if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			close(q.known)
			q.requeuer.activateAfter(0)
		}
	})
}

// evaluator knows which pods a quota counts. It needs no lister for that.
var evaluator = core.NewPodEvaluator(nil, clock.RealClock{})

// inScope reports whether a quota's scopes include the pod.
func inScope(quota *v1.ResourceQuota, pod *v1.Pod) (bool, error) {
	var scopes []v1.ScopedResourceSelectorRequirement
	for _, scope := range quota.Spec.Scopes {
		scopes = append(scopes, v1.ScopedResourceSelectorRequirement{
			ScopeName: scope, Operator: v1.ScopeSelectorOpExists,
		})
	}
	if selector := quota.Spec.ScopeSelector; selector != nil {
		scopes = append(scopes, selector.MatchExpressions...)
	}
	matching, err := evaluator.MatchingScopes(pod, scopes)
	return len(matching) == len(scopes), err
}

// countingQuotas returns the quotas that count the pod. Until they are known the pod is refused,
// which has requested something that they may forbid.
func (p *Plugin) countingQuotas(pod *v1.Pod, requested string) ([]*v1.ResourceQuota, *fwk.Status) {
	counting, known, err := p.quotas.quotasFor(pod)
	switch {
	case err != nil:
		return nil, fwk.AsStatus(fmt.Errorf("read the quotas of namespace %q: %w", pod.Namespace, err))
	case !known:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, requested+", and the scheduler does not know yet "+
			"whether a quota counts it; if that lasts, give it the right to list resource quotas (deploy/rbac)")
	}
	return counting, nil
}

// checkLimits refuses a pod that requests whole devices in its annotation beyond the limits of the
// same container, when that would pass by a quota, and else writes an event.
func (p *Plugin) checkLimits(pod *v1.Pod, request *request.Request) *fwk.Status {
	uncovered := p.schedulers.Uncovered(request)
	if len(uncovered) == 0 {
		return nil
	}
	refuse := func(text string) *fwk.Status { return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text) }
	switch p.quotaMode {
	case QuotaEverywhere:
		return refuse(uncovered[0].Text("the scheduler runs with --device-quota=everywhere"))
	case QuotaWarn:
	default:
		counting, refused := p.countingQuotas(pod, uncovered[0].Text("quotas may count it"))
		if refused != nil {
			return refused
		}
		for _, u := range uncovered {
			if quota := naming(counting, u.Resource); quota != nil {
				return refuse(u.Text(fmt.Sprintf("quota %q of namespace %q counts limits",
					quota.Name, pod.Namespace)))
			}
		}
	}
	p.warn(pod, uncovered[0])
	return nil
}

// checkParts refuses a pod that requests a part of a device, such as memory of a GPU, where a quota
// allows none of its devices: a quota counts no parts, and so each would pass by it.
func (p *Plugin) checkParts(pod *v1.Pod, request *request.Request) *fwk.Status {
	parts := p.schedulers.Parts(request)
	if len(parts) == 0 || p.quotaMode == QuotaWarn {
		return nil
	}
	requested := fmt.Sprintf("the pod requests a part of a device of %s", parts[0])
	counting, refused := p.countingQuotas(pod, requested)
	if refused != nil {
		return refused
	}
	for _, plain := range parts {
		if quota := forbidding(counting, plain); quota != nil {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("the pod requests a part of a device "+
				"of %s, and quota %q of namespace %q allows none of them: raise the quota, or remove the request",
				plain, quota.Name, pod.Namespace))
		}
	}
	return nil
}

// countLimit returns the limit for a pod, or nil if it cannot hold more than Kubernetes counts, or
// if no quota does.
func (p *Plugin) countLimit(pod *v1.Pod, request *request.Request) (*countLimit, *fwk.Status) {
	isInit := func(c grouptree.Container) bool { return c.Kind == grouptree.Init }
	if p.quotaMode == QuotaWarn || request.ByCountOnly() || !slices.ContainsFunc(request.Containers, isInit) {
		return nil, nil
	}
	limit := &countLimit{counted: resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})}
	if p.quotaMode == QuotaEverywhere {
		return limit, nil
	}
	var refused *fwk.Status
	limit.quotas, refused = p.countingQuotas(pod, "the pod requests certain devices for its init containers")
	if len(limit.quotas) == 0 {
		return nil, refused
	}
	return limit, nil
}

// warn writes the event, once for each pod.
func (p *Plugin) warn(pod *v1.Pod, u request.Uncovered) {
	if p.whatIf {
		return
	}
	if _, done := p.quotas.warned.Get(pod.UID); done {
		return
	}
	p.quotas.warned.Add(pod.UID, struct{}{})
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, "DevicesBeyondLimits", "Scheduling", "%s",
		u.Text("no quota counts them"))
}
