// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/documents"
)

// schedulerLabel selects the schedulers that run as pods, as kubeadm labels them.
const schedulerLabel = "component=kube-scheduler"

// ourFlags are flags that only KubeDevice's scheduler has.
var ourFlags = []string{"--devschedpath", "--devices-secure-port", "--device-seal-key"}

// schedulerFact is about the schedulers that may lead. One of upstream's binds device pods without
// devices.
func (e *Enrolment) schedulerFact(ctx context.Context) Fact {
	unknown := func(format string, args ...any) Fact {
		found := fact("schedulers", format, args...)
		if e.options.SchedulersReplaced {
			return found.notice("--schedulers-replaced says that all of them are KubeDevice's")
		}
		return found.blocks("control planes come first: give --cluster-kubeconfig of an administrator, or " +
			"--schedulers-replaced if each scheduler that may lead is KubeDevice's")
	}
	if e.options.Cluster == nil {
		return unknown("unknown: the kubelet's identity must not see them")
	}
	pods, err := e.options.Cluster.CoreV1().Pods(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: schedulerLabel})
	if err != nil {
		return unknown("unknown: %v", err)
	}
	leader := ""
	lease, err := e.options.Cluster.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-scheduler",
		metav1.GetOptions{})
	if err == nil {
		leader = ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	var ours, others []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		name := pod.Name
		if host, _, _ := strings.Cut(leader, "_"); host != "" && host == pod.Spec.NodeName {
			name += " (leads)"
		}
		if isOurs(pod) {
			ours = append(ours, name)
		} else {
			others = append(others, name)
		}
	}
	switch {
	case len(others) > 0:
		found := fact("schedulers", "upstream's may lead: %s", strings.Join(others, ", "))
		if policy := e.holdingPolicy(ctx); policy != "" {
			return found.notice(fmt.Sprintf("policy %s keeps device pods from it: see that its variable devices has "+
				"what this node will offer, and replace that scheduler", policy))
		}
		return found.blocks("it would bind device pods of this node without devices: replace the schedulers of all " +
			"control planes first, or keep device pods from it with a policy of deploy/policies-optional " +
			"(" + documents.URL + "deploy/install.md)")
	case len(ours) == 0:
		return unknown("unknown: no pod of kube-system has the label %s; %q leads", schedulerLabel, leader)
	}
	return fact("schedulers", "KubeDevice's: %s", strings.Join(ours, ", "))
}

// The optional policies that keep device pods from schedulers of upstream's, and their bindings.
const (
	namingPolicy    = "kubedevice-scheduler-name"
	requiringPolicy = "kubedevice-scheduler-name-required"
)

// holdingPolicy returns the policy in force that keeps device pods from schedulers of upstream's,
// or "" if none is seen: then the binding or its kind is not there, or must not be read.
func (e *Enrolment) holdingPolicy(ctx context.Context) string {
	admission := e.options.Cluster.AdmissionregistrationV1()
	if _, err := admission.MutatingAdmissionPolicies().Get(ctx, namingPolicy, metav1.GetOptions{}); err == nil {
		if _, err := admission.MutatingAdmissionPolicyBindings().Get(ctx, namingPolicy,
			metav1.GetOptions{}); err == nil {
			return namingPolicy
		}
	}
	if _, err := admission.ValidatingAdmissionPolicies().Get(ctx, requiringPolicy, metav1.GetOptions{}); err == nil {
		binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, requiringPolicy, metav1.GetOptions{})
		if err == nil && slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
			return requiringPolicy
		}
	}
	return ""
}

// isOurs reports whether a scheduler's pod was started with a flag that upstream's does not have.
func isOurs(pod *corev1.Pod) bool {
	for _, container := range pod.Spec.Containers {
		if slices.ContainsFunc(slices.Concat(container.Command, container.Args), func(arg string) bool {
			name, _, _ := strings.Cut(arg, "=")
			return slices.Contains(ourFlags, name)
		}) {
			return true
		}
	}
	return false
}

// policiesFact is about the admission policies, without which users may write allocations.
func (e *Enrolment) policiesFact(ctx context.Context) Fact {
	const advice = "apply deploy/policies, or deploy/second-scheduler where that is the scheduler"
	if e.options.Cluster == nil {
		return fact("policies", "unknown: the kubelet's identity must not see them").notice(
			"see that they are there, or " + advice)
	}
	var missing []string
	for _, name := range e.options.Policies {
		_, err := e.options.Cluster.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name,
			metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			missing = append(missing, name)
		} else if err != nil {
			return fact("policies", "unknown: %v", err).notice("see that they are there, or " + advice)
		}
	}
	if len(missing) > 0 {
		return fact("policies", "missing: %s", strings.Join(missing, ", ")).blocks(
			fmt.Sprintf("users who may write pods could write allocations: %s", advice))
	}
	return fact("policies", "%s", strings.Join(e.options.Policies, ", "))
}

// ownScheduler is the name for spec.schedulerName that only KubeDevice's scheduler serves.
const ownScheduler = "kubedevice-scheduler"

// maxNamed is how many pods a fact names.
const maxNamed = 10

// waitingFact is about the pods that only KubeDevice's scheduler schedules, which wait for ever
// where upstream's is put back.
func (e *Enrolment) waitingFact(ctx context.Context) Fact {
	const selector = "spec.schedulerName=" + ownScheduler + ",spec.nodeName=,status.phase=Pending"
	unknown := func(format string, args ...any) Fact {
		return fact("waiting", format, args...).notice("before the last scheduler of KubeDevice goes, see " +
			"kubectl get pods -A --field-selector " + selector)
	}
	if e.options.Cluster == nil {
		return unknown("unknown: the kubelet's identity must not see pods without a node")
	}
	list, err := e.options.Cluster.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return unknown("unknown: %v", err)
	}
	var pods []string
	for i := range list.Items {
		pods = append(pods, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	if len(pods) == 0 {
		return fact("waiting", "no pod waits under the scheduler name %s", ownScheduler)
	}
	slices.Sort(pods)
	named := strings.Join(pods[:min(len(pods), maxNamed)], ", ")
	if more := len(pods) - maxNamed; more > 0 {
		named += fmt.Sprintf(", and %d more", more)
	}
	return fact("waiting", "under the scheduler name %s wait %s", ownScheduler, named).notice("they need a scheduler " +
		"of KubeDevice: before the last one goes, delete the policy " + namingPolicy + " and have them made again")
}
