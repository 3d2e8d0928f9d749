// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstall has agents give back all enrolled nodes before the other parts of KubeDevice
// are deleted. It names the pods that block this, and changes nothing while there are such pods.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/agent"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

const (
	// pollInterval is the time between two checks of the nodes.
	pollInterval = 500 * time.Millisecond
	// orderTimeout is how long an order holds without renewal.
	orderTimeout = time.Minute
	// lastOrderTimeout is how long the last order holds: meanwhile the pods on the nodes are
	// deleted.
	lastOrderTimeout = 10 * time.Minute
	// noticeTime is how long API servers may take to notice the deletion of a policy binding.
	noticeTime = 10 * time.Second
	// recreateTime is how long controllers may take to create pods again.
	recreateTime = 5 * time.Second
	// namedPods is how many pods a message names at most.
	namedPods = 20
)

// schedulerName is the scheduler name that only KubeDevice's scheduler serves.
const schedulerName = "kubedevice-scheduler"

// Options configure Run. All fields are required, unless noted otherwise.
type Options struct {
	Client kubernetes.Interface
	// Namespace has the lease, the Secret and the ConfigMap.
	Namespace string
	// Drain evicts pods with devices; otherwise they block Run.
	Drain bool
	// SchedulerGoes says that pods which wait for KubeDevice's scheduler would wait forever.
	SchedulerGoes bool
	// Timeout is how long the nodes may take.
	Timeout time.Duration
	// PolicyBinding binds the policy that sets the scheduler's name in pods. With SchedulerGoes,
	// Run deletes it after all nodes are given back, and then evicts the pods that wait for the
	// scheduler, if controllers create them again. Empty means none.
	PolicyBinding string
	// Run deletes Secret and ConfigMap at the end; empty means none.
	Secret, ConfigMap string
	// Progress receives a line for each completed step and for each wait.
	Progress io.Writer
}

// Run gives back all nodes. If it fails, agents enroll again the nodes that they have given back.
func Run(ctx context.Context, o Options) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	if err := o.giveBack(ctx); err != nil {
		failed := agent.Order(context.WithoutCancel(ctx), o.Client, o.Namespace, false, 0)
		return errors.Join(err, ignoreNotFound(failed))
	}
	if o.SchedulerGoes {
		if err := o.freePods(ctx); err != nil {
			return err
		}
	}
	return o.deleteKeys(ctx)
}

// check returns an error that names the blocking pods. With Drain there are none: Run evicts pods
// that hold devices, and names pods that wait at the end.
func (o *Options) check(ctx context.Context) error {
	if o.Drain {
		return nil
	}
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	pods, err := o.pods(ctx)
	if err != nil {
		return err
	}
	var hold, wait []string
	for _, pod := range pods {
		_, err := deviceinfo.PodAllocation(&pod)
		switch {
		case err == nil && slices.Contains(nodes, pod.Spec.NodeName):
			hold = append(hold, fmt.Sprintf("%s/%s (on %s)", pod.Namespace, pod.Name, pod.Spec.NodeName))
		case o.SchedulerGoes && isWaiting(&pod):
			wait = append(wait, pod.Namespace+"/"+pod.Name)
		}
	}
	var found []error
	if len(hold) > 0 {
		found = append(found, fmt.Errorf("%d pods hold devices: %s; a container of theirs that is created again would "+
			"have no device: let them end, delete them, or have them evicted (helm rollback to the last revision of "+
			"helm history, helm upgrade --reuse-values --set uninstall.drain=true, and uninstall again)", len(hold),
			joinNames(hold)))
	}
	if len(wait) > 0 {
		found = append(found, fmt.Errorf("%d pods wait for the scheduler %s, which no other serves: %s; delete them",
			len(wait), schedulerName, joinNames(wait)))
	}
	if len(found) > 0 {
		return fmt.Errorf("nothing was uninstalled: %w", errors.Join(found...))
	}
	return nil
}

// pods returns all pods that have not ended.
func (o *Options) pods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := o.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	}), nil
}

// isWaiting reports whether a pod waits for KubeDevice's scheduler.
func isWaiting(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.Spec.SchedulerName == schedulerName && pod.DeletionTimestamp == nil
}

// nodes returns the names of the enrolled nodes.
func (o *Options) nodes(ctx context.Context) ([]string, error) {
	found, err := o.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: enrolment.GroupLabel})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var all []string
	for _, node := range found.Items {
		all = append(all, node.Name)
	}
	return all, nil
}

// giveBack orders all agents to give back their nodes, and waits for that. Without a lease for
// orders there are no agents, and no node may be enrolled.
func (o *Options) giveBack(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var ordered time.Time
	var said string
	for {
		if time.Since(ordered) > orderTimeout/4 {
			err := agent.Order(ctx, o.Client, o.Namespace, o.Drain, orderTimeout)
			switch {
			case apierrors.IsConflict(err):
				continue
			case apierrors.IsNotFound(err):
				return o.checkNoneEnrolled(ctx, err)
			case err != nil:
				return err
			}
			ordered = time.Now()
		}
		nodes, err := o.nodes(limited)
		if err == nil && len(nodes) == 0 {
			o.progress("all nodes are given back")
			return agent.Order(ctx, o.Client, o.Namespace, o.Drain, lastOrderTimeout)
		}
		if now := joinNames(nodes); err == nil && now != said {
			said = now
			o.progress("nodes are being given back: %s", now)
		}
		select {
		case <-time.After(pollInterval):
		case <-limited.Done():
			return fmt.Errorf("nothing was uninstalled: after %v nodes are not given back: %s: see why with kubectl "+
				"-n %s logs -l app.kubernetes.io/component=node --prefix", o.Timeout, said, o.Namespace)
		}
	}
}

// checkNoneEnrolled returns an error if nodes are enrolled. noAgents is the reason why no agent can
// give them back.
func (o *Options) checkNoneEnrolled(ctx context.Context, noAgents error) error {
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) > 0 {
		return fmt.Errorf("nothing was uninstalled: nodes are enrolled, and no agent gives them back: %s: %w: roll "+
			"back to the mode that they were enrolled with (helm history, helm rollback), and uninstall again",
			joinNames(nodes), noAgents)
	}
	o.progress("no node is enrolled")
	return nil
}

// freePods names the pods that would wait forever for the deleted scheduler. With PolicyBinding it
// first evicts the pods in which the policy has set the scheduler's name, such as replacements of
// evicted pods: controllers create these again without the name.
func (o *Options) freePods(ctx context.Context) error {
	if o.PolicyBinding != "" {
		if err := o.evictNamedByPolicy(ctx); err != nil {
			return err
		}
	}
	waiting, err := o.waiting(ctx)
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		o.progress("%d pods wait for the scheduler %s, which goes, and will wait until they are deleted: %s; where "+
			"their controllers create them with this name again, take it out of the pod template", len(waiting),
			schedulerName, joinNames(podNames(waiting)))
	}
	return nil
}

// evictNamedByPolicy deletes PolicyBinding, and evicts the pods that wait for the scheduler, if
// controllers create them again.
func (o *Options) evictNamedByPolicy(ctx context.Context) error {
	bindings := o.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if err := ignoreNotFound(bindings.Delete(ctx, o.PolicyBinding, metav1.DeleteOptions{})); err != nil {
		return fmt.Errorf("delete MutatingAdmissionPolicyBinding %s: %w", o.PolicyBinding, err)
	}
	if err := sleep(ctx, noticeTime); err != nil {
		return err
	}
	evicted := false
	for changed := true; changed; {
		waiting, err := o.waiting(ctx)
		if err != nil {
			return err
		}
		waiting = slices.DeleteFunc(waiting, func(pod corev1.Pod) bool { return metav1.GetControllerOf(&pod) == nil })
		if len(waiting) == 0 {
			break
		}
		o.progress("pods that wait for the scheduler %s are evicted, so that their controllers create them without "+
			"its name: %s", schedulerName, joinNames(podNames(waiting)))
		evicted = true
		if changed, err = o.evictUnchanged(ctx, waiting); err != nil {
			return err
		}
	}
	if !evicted {
		return nil
	}
	return sleep(ctx, recreateTime)
}

// evictUnchanged evicts pods, except pods that have changed in the meantime, as they may be bound.
// It reports whether any had changed.
func (o *Options) evictUnchanged(ctx context.Context, pods []corev1.Pod) (changed bool, err error) {
	for _, pod := range pods {
		// A Job may ignore evictions of its pods.
		same := metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
		err := o.Client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &same},
		})
		switch {
		case apierrors.IsConflict(err):
			changed = true
		case err != nil && !apierrors.IsNotFound(err):
			return changed, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return changed, nil
}

// waiting returns the pods that wait for KubeDevice's scheduler.
func (o *Options) waiting(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := o.pods(ctx)
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !isWaiting(&pod) }), err
}

// sleep waits for the duration, or until ctx ends.
func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// deleteKeys deletes the keys. No node needs them any more, and the running scheduler has read
// them.
func (o *Options) deleteKeys(ctx context.Context) error {
	var err error
	if o.Secret != "" {
		err = ignoreNotFound(o.Client.CoreV1().Secrets(o.Namespace).Delete(ctx, o.Secret, metav1.DeleteOptions{}))
	}
	if o.ConfigMap != "" {
		err = errors.Join(err, ignoreNotFound(
			o.Client.CoreV1().ConfigMaps(o.Namespace).Delete(ctx, o.ConfigMap, metav1.DeleteOptions{})))
	}
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (o *Options) progress(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

func podNames(pods []corev1.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Namespace+"/"+pod.Name)
	}
	return all
}

// joinNames joins names, and shortens a long list.
func joinNames(names []string) string {
	slices.Sort(names)
	if more := len(names) - namedPods; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedPods], ", "), more)
	}
	return strings.Join(names, ", ")
}
