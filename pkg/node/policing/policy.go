// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policing

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// Policy is what happens to a container that uses more than its share.
type Policy string

// The policies.
const (
	Ignore Policy = deviceinfo.OnShareExceededIgnore // the pod gets an event
	End    Policy = deviceinfo.OnShareExceededEnd    // and its container is ended
	// Evict: the pod is evicted. Its container is ended if the pod cannot be evicted at once, or if
	// the container goes on for evictionGrace.
	Evict Policy = deviceinfo.OnShareExceededEvict
)

// String implements pflag.Value.
func (p *Policy) String() string { return string(*p) }

// Type implements pflag.Value.
func (p *Policy) Type() string { return "Ignore|End|Evict" }

// Set implements pflag.Value.
func (p *Policy) Set(text string) error {
	if err := deviceinfo.CheckOnShareExceeded(text); err != nil {
		return err
	}
	*p = Policy(text)
	return nil
}

// Of returns the policy for a pod: what its annotation says, or else p. problem says what is wrong
// with the annotation, which then does not count.
func (p Policy) Of(pod pods.Pod) (policy Policy, problem string) {
	if pod.OnShareExceeded == "" {
		return p, ""
	}
	if err := policy.Set(pod.OnShareExceeded); err != nil {
		return p, fmt.Sprintf("annotation %s of the pod is ignored: %v", deviceinfo.OnShareExceededAnnotation, err)
	}
	return policy, ""
}
