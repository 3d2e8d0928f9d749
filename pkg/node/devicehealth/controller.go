// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	sdkdevice "github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/truncate"
)

const (
	// callTimeout is how long one call to the API server may take.
	callTimeout = 10 * time.Second
	// firstRetry and lastRetry are the pauses after a call that failed; they double in between.
	firstRetry, lastRetry = time.Second, time.Minute
	// reviewInterval is how often the rules of pods with failed devices are looked up again: a
	// namespace may change its mind.
	reviewInterval = time.Minute
	// maxConditionBytes bounds the message of a condition.
	maxConditionBytes = 1024
)

// The reasons of events on pods.
const (
	reasonFailed  = "DeviceUnhealthy"      // a device that the pod holds is unhealthy or gone
	reasonRule    = "DeviceFailurePolicy"  // what pod or namespace say about failures does not count
	reasonEvicted = "DeviceFailureEvicted" // the pod is evicted
	reasonBlocked = "DeviceFailureBlocked" // it must not be, or cannot be yet
)

// reasonHealthy is the reason of the condition when all devices are healthy again.
const reasonHealthy = "DevicesHealthy"

// Pods knows the pods of this node. *pods.Registry does.
type Pods interface {
	Get(uid string) (pod pods.Pod, known bool)
	Active(uid string) bool
	Check() error
	Changed() <-chan struct{}
}

// Events writes events on pods. It must not block.
type Events interface {
	// Warn puts a warning on a pod. The same warning again is counted, not repeated.
	Warn(pod *corev1.ObjectReference, reason, message string)
}

// Metrics counts evictions.
type Metrics interface {
	// ObserveEviction counts a try to evict a pod.
	ObserveEviction(outcome Outcome)
}

// Outcome is what became of a try to evict a pod.
type Outcome string

// The outcomes.
const (
	Evicted Outcome = "evicted"
	Blocked Outcome = "blocked" // by a PodDisruptionBudget
	Failed  Outcome = "error"
)

// Outcomes are all of them.
func Outcomes() []Outcome { return []Outcome{Evicted, Blocked, Failed} }

// Options are what a Controller works with.
type Options struct {
	Tracker *Tracker
	Grants  Grants
	Pods    Pods
	// Default is the rule for pods that say nothing, in namespaces that say nothing.
	Default Rule
	// Replacer requests other devices. NotReplaced says why this node does not do so, so that
	// Replace means Evict; then Replacer is not needed.
	Replacer    Replacer
	NotReplaced string
	Events      Events
	Metrics     Metrics
}

// Controller does what follows for pods when their devices fail: an event, the condition
// DevicesHealthy, and an eviction or a request for other devices where their rule says so. All that
// it has to know after a restart is in the API server and in the checkpoint of grants. It belongs
// to one goroutine.
type Controller struct {
	Options
	client kubernetes.Interface
	rules  rules
	pods   map[string]*podState // by UID, of pods that need anything
	// basis is what the round goes by: once it has changed, a device may be healthy again.
	basis basis
}

// podState is what was done for a pod.
type podState struct {
	warned   map[string]bool // messages; nil before the first round
	problems map[string]bool // about its rule
	missing  time.Time       // since when it waits for a plugin without a break; zero if it does not

	sent, over pods.Failure // the condition that was patched, and the one that it replaced
	shown      time.Time    // until then the watch may not have delivered it
	patch      attempts

	evicted bool
	blocked string // why it could not be evicted, as the event said
	evict   attempts
}

// attempts paces tries of a call that fails.
type attempts struct {
	backoff time.Duration
	next    time.Time // zero: now
}

func (a *attempts) due(now time.Time) bool { return !now.Before(a.next) }

// failed notes that a try failed, and that the server wants a pause of at least that long.
func (a *attempts) failed(now time.Time, least time.Duration) {
	a.backoff = min(max(2*a.backoff, firstRetry), lastRetry)
	a.next = now.Add(max(a.backoff, least))
}

// NewController returns a controller that calls the API server with the client; call Run.
func NewController(options Options, client kubernetes.Interface) *Controller {
	return &Controller{
		Options: options, client: client, pods: map[string]*podState{},
		rules: rules{client: client, fallback: options.Default, namespaces: map[string]namespace{}},
	}
}

// Run follows devices, grants and pods until ctx is done.
func (k *Controller) Run(ctx context.Context) {
	follow(ctx, k.Tracker.snapshot, k.Grants, k.Pods,
		func(now *snapshot, granted []grants.Allocation, basis basis) (next time.Time) {
			if now == nil {
				return time.Time{}
			}
			k.basis = basis
			return k.reconcile(ctx, now, granted)
		})
}

// affected is a pod with what is wrong with its devices.
type affected struct {
	uid    string
	pod    pods.Pod
	failed []failure
	known  bool // the health of all its devices is

	granted *grants.Allocation // or the one for which the pod waits, see admission.Waiting
}

// failure is an unhealthy device of a container.
type failure struct {
	unhealthy
	container string
}

func (f failure) text() string {
	what := "is unhealthy"
	if f.Reason == plugins.ReasonGone {
		what = "is gone"
	}
	return fmt.Sprintf("%s, which container %q holds, %s%s", kubeletdevice.Text(f.Name), f.container, what,
		inBrackets(f.Health))
}

// reconcile does what is to be done now, and returns when there is more to do, or the zero time.
func (k *Controller) reconcile(ctx context.Context, now *snapshot, granted []grants.Allocation) (next time.Time) {
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	present := map[string]bool{}
	for i := range granted {
		uid := granted[i].PodUID
		if !k.Pods.Active(uid) {
			continue
		}
		pod, _ := k.Pods.Get(uid)
		a := inspect(now, pod, &granted[i])
		if len(a.failed) == 0 && k.pods[uid] == nil && pod.Failure.Status == "" && !a.granted.Requests() {
			continue
		}
		present[uid] = true
		if k.pods[uid] == nil {
			k.pods[uid] = &podState{}
		}
		k.pods[uid].missing = a.setMissing(k.pods[uid].missing)
		sooner(k.reconcilePod(ctx, a, k.pods[uid]))
	}
	maps.DeleteFunc(k.pods, func(uid string, _ *podState) bool { return !present[uid] })
	return next
}

// setMissing sets since when the pod waits for plugins that are gone, which is what was known if
// that is so already. It returns it, or the zero time.
func (a affected) setMissing(known time.Time) time.Time {
	since := time.Time{}
	for i := range a.failed {
		if a.failed[i].isFailure() {
			continue
		}
		if since = known; since.IsZero() {
			since = time.Now().UTC().Truncate(time.Second)
			known = since
		}
		a.failed[i].since = since
	}
	return since
}

// inspect finds out what is wrong with the devices of a pod. That a plugin is gone is wrong for a
// container that waits for its devices and never ran: after a reboot, plugins may come late. That
// another plugin has claimed them is not: both are there, and the container waits until one is not.
func inspect(now *snapshot, pod pods.Pod, granted *grants.Allocation) affected {
	a := affected{uid: granted.PodUID, pod: pod, known: true, granted: granted}
	for _, containers := range []map[string]types.ContainerInfo{
		granted.PodInfo.InitContainers, granted.PodInfo.RunningContainers,
	} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			seen := map[string]bool{}
			for _, from := range containers[name].AllocateFrom {
				from = currentName(now.inventory, from)
				device := path.Dir(string(from))
				if seen[device] {
					continue
				}
				seen[device] = true
				h, known := now.inventory.HealthOf(from)
				u, listed := now.unhealthy[device]
				missing, withheld := now.inventory.Missing(from), now.inventory.Withheld(from)
				switch {
				case missing != nil && withheld == nil && granted.IsAwaited(name) && pod.NeverStarted(name):
					a.failed = append(a.failed, failure{unhealthy{Health: plugins.Health{Health: sdkdevice.Health{
						Device: device, Reason: plugins.ReasonPluginGone, Message: missing.Error(),
					}, Name: from}}, name})
				case !known || !h.Healthy && !listed: // the snapshot is older than the grant
					a.known = false
				case h.Flapping: // what follows depends on what it is when it has settled
					a.known = false
				case !h.Healthy:
					u.Name = from
					a.failed = append(a.failed, failure{u, name})
				}
			}
		}
	}
	slices.SortFunc(a.failed, func(a, b failure) int {
		return strings.Compare(a.Device+" "+a.container, b.Device+" "+b.container)
	})
	return a
}

// reconcilePod does what is to be done for one pod.
func (k *Controller) reconcilePod(ctx context.Context, a affected, s *podState) (next time.Time) {
	if len(a.failed) == 0 && !a.known {
		return time.Time{}
	}
	if len(a.failed) == 0 {
		s.warned, s.evict, s.blocked = map[string]bool{}, attempts{}, ""
		k.withdrawRequest(ctx, a)
		return k.setCondition(ctx, a, s, pods.Failure{Status: string(corev1.ConditionTrue), Reason: reasonHealthy,
			Message: "all devices that the pod holds are healthy"})
	}
	rule, problems, err := k.rules.ruleFor(ctx, a.pod)
	if err != nil {
		problems = append(problems, err.Error())
	}
	k.warnOfRule(a, s, problems)
	act, rule := effectiveRule(a, rule)
	due := act.since().Add(rule.GracePeriod)
	k.warn(a, act, s, rule, due)

	next = time.Now().Add(reviewInterval)
	if at := k.setCondition(ctx, a, s, conditionOf(a)); !at.IsZero() && at.Before(next) {
		next = at
	}
	if rule.Policy == Replace {
		due = k.requestReplacement(ctx, act, due)
	} else {
		k.withdrawRequest(ctx, a)
	}
	if rule.Policy != Ignore && !s.evicted && !a.pod.Failure.Terminating {
		if at := k.evict(ctx, act, s, due); !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

// since returns since when a device of the pod is unhealthy without a break, as far as this process
// knows of breaks.
func (a affected) since() time.Time {
	first := a.failed[0].unbroken()
	for _, f := range a.failed {
		if at := f.unbroken(); at.Before(first) {
			first = at
		}
	}
	return first
}

func (a affected) ref() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: a.pod.Namespace, Name: a.pod.Name, UID: apitypes.UID(a.uid),
	}
}

// warn warns the pod once of each failure, and again if the device was healthy in between. act are
// those for which something is done by the rule. What the condition says already was reported by
// an earlier process.
func (k *Controller) warn(a, act affected, s *podState, rule Rule, due time.Time) {
	was := conditionOf(a)
	reported := s.warned == nil && a.pod.Failure.Status == was.Status && a.pod.Failure.Message == was.Message
	warned := map[string]bool{}
	for _, f := range a.failed {
		message := f.text() + "; the container is left alone"
		if slices.Contains(act.failed, f) {
			message = f.text() + "; " + k.follows(act, rule, due)
		}
		if !reported && !s.warned[message] && !warned[message] {
			k.Events.Warn(a.ref(), reasonFailed, message)
		}
		warned[message] = true
	}
	s.warned = warned
}

// follows says what is done for the failures by the rule.
func (k *Controller) follows(act affected, rule Rule, due time.Time) string {
	at := due.UTC().Format(time.RFC3339)
	container := "the container"
	if len(act.unstarted().failed) > 0 {
		container = "the container, which never ran,"
	}
	switch {
	case rule.Policy == Replace && k.irreplaceable(act) == "":
		return container + " is given another one if it is so at " + at
	case rule.Policy == Replace:
		return "the pod is evicted if it is so at " + at + ", as its devices are not replaced: " + k.irreplaceable(act)
	case rule.Policy == Evict:
		return "the pod is evicted if it is so at " + at
	}
	return container + " is left alone"
}

func (k *Controller) warnOfRule(a affected, s *podState, problems []string) {
	warned := map[string]bool{}
	for _, problem := range problems {
		if !s.problems[problem] {
			k.Events.Warn(a.ref(), reasonRule, problem)
		}
		warned[problem] = true
	}
	s.problems = warned
}

// conditionOf returns the condition of a pod with failures.
func conditionOf(a affected) pods.Failure {
	var texts []string
	for _, f := range a.failed {
		texts = append(texts, f.text())
	}
	message := truncate.Bytes(strings.Join(texts, "; "), maxConditionBytes)
	return pods.Failure{Status: string(corev1.ConditionFalse), Reason: a.failed[0].Reason, Message: message}
}

// setCondition makes the pod's condition be the wanted one, and returns when to try again.
func (k *Controller) setCondition(ctx context.Context, a affected, s *podState, want pods.Failure) (next time.Time) {
	has := pods.Failure{Status: a.pod.Failure.Status, Reason: a.pod.Failure.Reason, Message: a.pod.Failure.Message}
	now := time.Now()
	switch {
	case has == want, has.Status == "" && want.Status == string(corev1.ConditionTrue):
		return time.Time{}
	case s.sent == want && s.over == has && now.Before(s.shown):
		return s.shown
	case !s.patch.due(now):
		return s.patch.next
	}
	transition := now
	if len(a.failed) > 0 {
		transition = a.since()
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.uid},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": deviceinfo.DevicesHealthyCondition, "status": want.Status, "reason": want.Reason,
			"message": want.Message, "lastTransitionTime": metav1.NewTime(transition.UTC()),
		}}},
	})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, err = k.client.CoreV1().Pods(a.pod.Namespace).Patch(ctx, a.pod.Name, apitypes.StrategicMergePatchType, body,
			metav1.PatchOptions{FieldManager: "kubecri"}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Cannot set the condition of a pod about its devices; will retry",
			logkey.Pod, klog.KRef(a.pod.Namespace, a.pod.Name))
		s.patch.failed(now, 0)
		return s.patch.next
	}
	s.sent, s.over, s.shown, s.patch = want, has, now.Add(callTimeout), attempts{}
	return s.shown
}

// evict evicts the pod if it is time, and returns when to try again.
func (k *Controller) evict(ctx context.Context, a affected, s *podState, due time.Time) (next time.Time) {
	now := time.Now()
	switch {
	case now.Before(due):
		return due
	case !s.evict.due(now):
		return s.evict.next
	case k.basis.outdated():
		return now
	}
	s.evicted = Evictor{k.client, k.Events, k.Metrics}.try(ctx, a.ref(), &s.evict, &s.blocked, EvictionReasons{
		Evicted: reasonEvicted, Blocked: reasonBlocked, Why: a.failed[0].text(),
	})
	return s.evict.next
}
