// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// healths are unhealthy devices that a test changes.
type healths struct {
	mu      sync.Mutex
	seeds   []string
	list    []deviceinfo.UnhealthyDevice
	known   bool
	changed chan struct{}
}

func (h *healths) Seed(_ context.Context, annotation string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seeds = append(h.seeds, annotation)
}

func (h *healths) Unhealthy() ([]deviceinfo.UnhealthyDevice, bool, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list, h.known, h.changed
}

func (h *healths) set(devices ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known, h.list = true, nil
	for _, device := range devices {
		h.list = append(h.list,
			deviceinfo.UnhealthyDevice{Device: device, Reason: "Lost", Since: time.Unix(0, 0).UTC()})
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

func TestTheNodeSaysWhyDevicesAreUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := nodeWith("", nil)
		there.Annotations[deviceinfo.UnhealthyAnnotation] = "earlier"
		client := fake.NewClientset(there)
		h := &healths{changed: make(chan struct{})}
		followed(t, client, newSource(gpus(1)), Options{Health: h}, func(a *Advertiser, nodes chan<- *corev1.Node) {
			check := func(when, want string) {
				t.Helper()
				pass(2 * Gap)
				got, there := get(t, client).Annotations[deviceinfo.UnhealthyAnnotation]
				if got != want || there != (want != "") || a.Check() != nil {
					t.Errorf("%s: %q (%v), want %q", when, got, a.Check(), want)
				}
			}
			nodes <- get(t, client)
			check("while they are not known", "earlier")
			if len(h.seeds) == 0 || h.seeds[0] != "earlier" {
				t.Errorf("what the node said before is %q", h.seeds)
			}
			h.set("gpu/0")
			check("one", `[{"device":"gpu/0","reason":"Lost","since":"1970-01-01T00:00:00Z"}]`)
			h.set()
			check("none", "")

			full := get(t, client)
			full.Annotations["huge"] = strings.Repeat("x", deviceinfo.MaxBytes-500)
			if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), full, ""); err != nil {
				t.Fatal(err)
			}
			nodes <- full
			h.set(strings.Repeat("gpu/", 200))
			check("where there is no room for it, the inventory is published without", "")
		})
	})
}
