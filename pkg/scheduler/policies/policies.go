// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies checks that the admission policies of deploy/policies are installed. Without
// them users may write the annotation's fields that belong to the scheduler and to the nodes.
package policies

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

const (
	// checkPeriod is the time between two checks. Policies may be installed and removed at any
	// time.
	checkPeriod = 5 * time.Minute
	// requestTimeout is the limit for one request to the API server.
	requestTimeout = 10 * time.Second
)

// required returns the names of the policies. Each has a binding of the same name.
func required() []string {
	return []string{"kubedevice-pod-allocations", "kubedevice-bindings", "kubedevice-node-inventories"}
}

// Watch checks the policies until ctx ends: it logs each one that is not installed and sets
// metrics.PoliciesMissing.
func Watch(ctx context.Context, client kubernetes.Interface) {
	wait.UntilWithContext(ctx, func(ctx context.Context) { check(ctx, client) }, checkPeriod)
}

// check looks for the policies once. Policies that it has no permission to look for count as
// missing.
func check(ctx context.Context, client kubernetes.Interface) {
	logger := klog.FromContext(ctx)
	missing := 0
	for _, name := range required() {
		switch found, err := installed(ctx, client, name); {
		case apierrors.IsForbidden(err):
			metrics.PoliciesMissing.Set(float64(len(required())))
			logger.Info("The scheduler has no permission to look for the admission policies; "+
				"give it the cluster role kubedevice-scheduler", "err", err)
			return
		case err != nil: // the scheduler is stopping
			return
		case !found:
			missing++
			logger.Info("An admission policy is not installed or not bound: users can forge what it guards",
				"policy", name)
		}
	}
	metrics.PoliciesMissing.Set(float64(missing))
}

// installed reports whether a policy and its binding exist. It retries until it gets an answer or
// ctx ends.
func installed(ctx context.Context, client kubernetes.Interface, name string) (found bool, err error) {
	admission := client.AdmissionregistrationV1()
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 8, Cap: time.Minute}
	err = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err := admission.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			_, err = admission.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
		}
		found = err == nil
		if apierrors.IsForbidden(err) {
			return false, err
		}
		return found || apierrors.IsNotFound(err), nil
	})
	return found, err
}
