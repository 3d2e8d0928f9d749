// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// enforcement is an Enforcement that changes.
type enforcement struct {
	mu      sync.Mutex
	now     *deviceinfo.ShareEnforcement
	changed chan struct{}
}

func (e *enforcement) ShareEnforcement() (*deviceinfo.ShareEnforcement, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now, e.changed
}

// set says that these devices are policed.
func (e *enforcement) set(devices ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = &deviceinfo.ShareEnforcement{OnShareExceeded: "End", Devices: map[string][]deviceinfo.Enforcement{}}
	for _, d := range devices {
		e.now.Devices[d] = []deviceinfo.Enforcement{deviceinfo.Policed}
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

func TestTheNodePublishesWhatHoldsContainersToShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		s, e := newSource(gpus(2)), &enforcement{changed: make(chan struct{})}
		followed(t, client, s, Options{Enforcement: e}, func(a *Advertiser, nodes chan<- *corev1.Node) {
			check := func(when, want string) {
				t.Helper()
				pass(2 * Gap)
				got := get(t, client).Annotations[deviceinfo.ShareEnforcementAnnotation]
				if got != want || a.Check() != nil {
					t.Errorf("%s: %q (%v), want %q", when, got, a.Check(), want)
				}
			}
			nodes <- get(t, client)
			check("before it is known", "")
			e.set("gpu/0", "gpu/9") // of which the node has one
			check("at first", `{"onShareExceeded":"End","devices":{"gpu/0":["policed"]}}`)
			e.set("gpu/0", "gpu/1")
			check("later", `{"onShareExceeded":"End","devices":{"gpu/0":["policed"],"gpu/1":["policed"]}}`)
			e.set()
			check("without any", "")
		})
	})
}
