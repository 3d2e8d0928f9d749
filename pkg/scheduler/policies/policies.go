// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies compares the admission policies of a cluster with those of deploy/policies.
// Without them users may write the annotation's fields that belong to the scheduler and to the
// nodes. A weakened policy has the right name but protects nothing.
package policies

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

const (
	// checkPeriod is the time between two checks. Policies may be installed and removed at any
	// time.
	checkPeriod = 5 * time.Minute
	// requestTimeout is the timeout of one request to the API server.
	requestTimeout = 10 * time.Second
)

// Problem is one difference of an installed policy from the one that this program was built with.
type Problem struct {
	Policy string
	Reason Reason
	// Text describes the difference for people.
	Text string
}

// Report is the result of a comparison.
type Report struct {
	Problems []Problem // by policy
	// Customized are the lists of names in variables, such as the users that may write allocations,
	// that administrators have changed, by policy. They are no problems.
	Customized map[string]string
}

// Watch compares the policies with those that this program was built with until ctx ends. It logs
// the differences, and sets metrics.PoliciesMissing and metrics.PolicyProblems.
func Watch(ctx context.Context, client kubernetes.Interface) {
	customized := map[string]string{}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		report, err := Check(ctx, client)
		if err != nil {
			if ctx.Err() == nil { // a test reads the shipped policies
				klog.FromContext(ctx).Error(err, "Cannot check the admission policies")
			}
			return
		}
		report.publish(ctx)
		for _, policy := range slices.Sorted(maps.Keys(report.Customized)) {
			if variables := report.Customized[policy]; customized[policy] != variables {
				klog.FromContext(ctx).Info("An admission policy names others than this scheduler was built with",
					logkey.Policy, policy, logkey.Variables, variables)
			}
		}
		customized = report.Customized
	}, checkPeriod)
}

// Check compares the policies once. It retries until it has an answer for each or ctx ends.
// Policies that the client may not read are a problem, no error.
func Check(ctx context.Context, client kubernetes.Interface) (Report, error) {
	report := Report{Customized: map[string]string{}}
	guards, err := shipped()
	if err != nil {
		return report, err
	}
	for _, want := range guards {
		name := want.policy.Name
		policy, binding, err := installed(ctx, client, name)
		if apierrors.IsForbidden(err) {
			report.Problems = append(report.Problems, Problem{name, Unknown, "the scheduler may not read it"})
			continue
		}
		if err != nil {
			return report, err
		}
		problems, customized := compare(want, policy, binding)
		for _, p := range problems {
			report.Problems = append(report.Problems, Problem{name, p.reason, p.text})
		}
		if len(customized) > 0 {
			report.Customized[name] = strings.Join(customized, ", ")
		}
	}
	return report, nil
}

// publish logs the problems and sets the metrics.
func (r Report) publish(ctx context.Context) {
	logger := klog.FromContext(ctx)
	missing := map[string]bool{}
	metrics.PolicyProblems.Reset()
	for _, p := range r.Problems {
		switch p.Reason {
		case Missing, Unbound, Unknown:
			missing[p.Policy] = true
		}
		metrics.PolicyProblems.WithLabelValues(p.Policy, string(p.Reason)).Set(1)
		logger.Info("An admission policy is not what this scheduler was built with: users may be able to forge "+
			"what it guards", logkey.Policy, p.Policy, logkey.Reason, p.Reason, logkey.Problem, p.Text,
			logkey.NextStep, p.NextStep())
	}
	metrics.PoliciesMissing.Set(float64(len(missing)))
}

// apply is the instruction to apply the policies. Policies applied for another kind of installation
// would forbid this scheduler to write allocations.
const apply = "apply deploy/policies of this release as they were installed (by hand: kubectl apply -f " +
	"deploy/policies; second scheduler: kubectl apply -k deploy/second-scheduler; Helm: helm upgrade --reuse-values)"

// NextStep says how to fix the problem.
func (p Problem) NextStep() string {
	switch p.Reason {
	case Unknown:
		return "apply deploy/rbac of this release: kubectl apply -f deploy/rbac"
	case Missing, Unbound, Outdated:
		return apply
	default: // kubectl apply keeps fields that another client has added
		return "kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding " + p.Policy + ", then " +
			apply
	}
}

// installed returns a policy and its binding; each is nil if it does not exist. It retries until it
// gets an answer or ctx ends.
func installed(ctx context.Context, client kubernetes.Interface, name string) (
	*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding, error,
) {
	admission := client.AdmissionregistrationV1()
	policy, err := get(ctx, name, admission.ValidatingAdmissionPolicies().Get)
	if err != nil {
		return nil, nil, err
	}
	binding, err := get(ctx, name, admission.ValidatingAdmissionPolicyBindings().Get)
	return policy, binding, err
}

// get returns the object of that name, or nil when there is none.
func get[T any](
	ctx context.Context, name string, read func(context.Context, string, metav1.GetOptions) (*T, error),
) (object *T, err error) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 8, Cap: time.Minute}
	err = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		read, err := read(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			object = read
			return true, nil
		case apierrors.IsForbidden(err):
			return false, err
		}
		return apierrors.IsNotFound(err), nil
	})
	return object, err
}
