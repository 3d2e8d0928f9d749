// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// policies are the admission policies without which users may write the annotation's fields that belong to the scheduler
// and to the nodes. Each comes with a binding of the same name.
var policies = []string{"kubedevice-pod-allocations", "kubedevice-bindings", "kubedevice-node-inventories"}

// policiesPeriod is how often the policies are looked for. They may be installed, and removed, at any time.
const policiesPeriod = 5 * time.Minute

// watchPolicies warns of admission policies that are not installed, until ctx ends.
func watchPolicies(ctx context.Context, client kubernetes.Interface) {
	wait.UntilWithContext(ctx, func(ctx context.Context) { checkPolicies(ctx, client) }, policiesPeriod)
}

// checkPolicies looks for the policies once. Those that it may not look for count as missing.
func checkPolicies(ctx context.Context, client kubernetes.Interface) {
	logger := klog.FromContext(ctx)
	missing := 0
	for _, name := range policies {
		switch found, err := installed(ctx, client, name); {
		case apierrors.IsForbidden(err):
			policiesMissing.Set(float64(len(policies)))
			logger.Info("The scheduler may not look whether the admission policies are installed; give it the cluster role kubedevice-scheduler", "err", err)
			return
		case err != nil: // the scheduler is stopped
			return
		case !found:
			missing++
			logger.Info("An admission policy is not installed or not bound: users can forge what it guards", "policy", name)
		}
	}
	policiesMissing.Set(float64(missing))
}

// installed reports whether a policy and its binding exist. It asks until it gets an answer, or ctx ends.
func installed(ctx context.Context, client kubernetes.Interface, name string) (bool, error) {
	admission := client.AdmissionregistrationV1()
	found := false
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 8, Cap: time.Minute}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, lookDeadline)
		defer cancel()
		_, err := admission.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			_, err = admission.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
		}
		found = err == nil
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return true, nil
		case apierrors.IsForbidden(err):
			return false, err
		default:
			return false, nil
		}
	})
	return found, err
}
