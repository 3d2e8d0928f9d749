// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// lateTTL is for how long what the API server shows counts as late after a container has waited
// without success: as long as a kubelet takes at least until it tries again.
const lateTTL = 10 * time.Second

// Pods looks up the pods of containers that are created. The runtime calls for one container at a
// time, so one whose pod is not known yet holds up all others. The first waits for its pod. When it
// has waited without success, the next ones do not wait for theirs, for a while; the kubelet tries
// all of them again. All methods are safe for concurrent use.
type Pods struct {
	admission.Pods

	mu   sync.Mutex
	late time.Time // until when no call waits
}

// NewPods returns Pods that looks pods up in those.
func NewPods(known admission.Pods) *Pods { return &Pods{Pods: known} }

// Lookup implements admission.Pods.
func (p *Pods) Lookup(ctx context.Context, uid string) (pods.Pod, error) {
	if pod, known := p.Get(uid); known {
		return pod, nil
	}
	p.mu.Lock()
	isLate := time.Now().Before(p.late)
	p.mu.Unlock()
	if isLate {
		return pods.Pod{}, fmt.Errorf("pod with UID %q: %w", uid, pods.ErrUnknown)
	}
	pod, err := p.Pods.Lookup(ctx, uid)
	if err != nil {
		p.mu.Lock()
		p.late = time.Now().Add(lateTTL)
		p.mu.Unlock()
	}
	return pod, err
}
