// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// Policy is what happens to a pod whose device has failed.
type Policy string

// The policies.
const (
	Ignore Policy = deviceinfo.OnDeviceFailureIgnore // the pod gets an event
	Evict  Policy = deviceinfo.OnDeviceFailureEvict  // and evicted after the grace period
	// Replace: its container is given another device after the grace period, or else Evict.
	Replace Policy = deviceinfo.OnDeviceFailureReplace
)

// String implements pflag.Value.
func (p *Policy) String() string { return string(*p) }

// Type implements pflag.Value.
func (p *Policy) Type() string { return "Ignore|Evict|Replace" }

// Set implements pflag.Value.
func (p *Policy) Set(text string) error {
	if err := deviceinfo.CheckOnDeviceFailure(text); err != nil {
		return err
	}
	*p = Policy(text)
	return nil
}

// Rule is a policy with its grace period.
type Rule struct {
	Policy Policy
	// GracePeriod is how long a device may be unhealthy first; it is not negative.
	GracePeriod time.Duration
}

// namespaceTTL is how long what a namespace says is remembered.
const namespaceTTL = 30 * time.Second

// namespace is what is remembered of a namespace.
type namespace struct {
	annotations map[string]string
	err         error
	read        time.Time
}

// rules finds the rule of pods. It belongs to one goroutine.
type rules struct {
	client     kubernetes.Interface
	fallback   Rule
	namespaces map[string]namespace
}

// ruleFor returns the rule for a pod: what the pod says, or else its namespace, or else the node;
// and what of it makes no sense and does not count. While the namespace cannot be read, the error
// says why, and no pod is evicted that does not want it itself.
func (r *rules) ruleFor(ctx context.Context, pod pods.Pod) (rule Rule, problems []string, err error) {
	rule = r.fallback
	var policy Policy
	policySet := false
	graceSet := false
	apply := func(where, policyText, graceText string) {
		if policyText != "" && !policySet {
			if err := policy.Set(policyText); err != nil {
				problems = append(problems, fmt.Sprintf("annotation %s of the %s is ignored: %v",
					deviceinfo.OnDeviceFailureAnnotation, where, err))
			} else {
				rule.Policy, policySet = policy, true
			}
		}
		if graceText != "" && !graceSet {
			grace, err := deviceinfo.ParseDeviceFailureGracePeriod(graceText)
			if err != nil {
				problems = append(problems, fmt.Sprintf("annotation %s of the %s is ignored: %v",
					deviceinfo.DeviceFailureGracePeriodAnnotation, where, err))
			} else {
				rule.GracePeriod, graceSet = grace, true
			}
		}
	}
	apply("pod", pod.Failure.Policy, pod.Failure.GracePeriod)
	if policySet && (graceSet || rule.Policy == Ignore) {
		return rule, problems, nil
	}
	said, err := r.namespace(ctx, pod.Namespace)
	if err != nil {
		if !policySet {
			rule.Policy = Ignore
		}
		return rule, problems, fmt.Errorf("what namespace %q wants is not known: %w; see deploy/rbac",
			pod.Namespace, err)
	}
	apply("namespace", said[deviceinfo.OnDeviceFailureAnnotation], said[deviceinfo.DeviceFailureGracePeriodAnnotation])
	return rule, problems, nil
}

// namespace returns the annotations of a namespace.
func (r *rules) namespace(ctx context.Context, name string) (map[string]string, error) {
	known, ok := r.namespaces[name]
	if ok && time.Since(known.read) < namespaceTTL {
		return known.annotations, known.err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object, err := r.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	now := namespace{err: err, read: time.Now()}
	if err == nil {
		now.annotations = object.Annotations
	}
	r.namespaces[name] = now
	return now.annotations, now.err
}
