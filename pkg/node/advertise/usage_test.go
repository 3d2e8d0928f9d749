// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// usage is a Usage that changes.
type usage struct {
	mu      sync.Mutex
	now     *deviceinfo.Usage
	changed chan struct{}
}

func (u *usage) Usage() (*deviceinfo.Usage, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now, u.changed
}

func (u *usage) set(now *deviceinfo.Usage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now = now
	close(u.changed)
	u.changed = make(chan struct{})
}

// used is that of GPU 0, and of one that the node does not have.
func used(bytes int64) *deviceinfo.Usage {
	return &deviceinfo.Usage{
		Time: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
		Devices: map[string]deviceinfo.DeviceUsage{
			"gpu/0": {MemoryUsed: device.Read(bytes)}, "gpu/9": {MemoryUsed: device.Read(bytes)},
		},
	}
}

func TestTheNodePublishesHowItsDevicesAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		s, u := newSource(gpus(2)), &usage{changed: make(chan struct{})}
		followed(t, client, s, Options{Usage: u}, func(a *Advertiser, nodes chan<- *corev1.Node) {
			check := func(when, want string) {
				t.Helper()
				pass(2 * Gap)
				if got := get(t, client).Annotations[deviceinfo.UsageAnnotation]; got != want || a.Check() != nil {
					t.Errorf("%s: %q (%v), want %q", when, got, a.Check(), want)
				}
			}
			nodes <- get(t, client)
			check("before it is known", "")
			u.set(used(5))
			check("at first", `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/0":{"memoryUsed":5}}}`)
			u.set(used(7))
			check("later", `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/0":{"memoryUsed":7}}}`)
			u.set(nil)
			check("while it is not known", `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/0":{"memoryUsed":7}}}`)
		})
	})
}

func TestUsageLeavesRoomForEverythingElse(t *testing.T) {
	node := nodeWith("", nil)
	node.Annotations["huge"] = strings.Repeat("x", deviceinfo.MaxBytes-300)
	before := sizeWith(node, nil)
	node.Annotations[deviceinfo.UsageAnnotation] = strings.Repeat("x", 200)
	if now := sizeWith(node, nil); now != before {
		t.Errorf("usage takes %d bytes from the others", now-before)
	}
	for _, room := range []int{120, 90, 60, 10} {
		node.Annotations["huge"] = strings.Repeat("x", deviceinfo.MaxBytes-before+len(node.Annotations["huge"])-room)
		annotations := map[string]string{}
		(&usageReport{used(5)}).addTo(annotations, node, gpus(2))
		written := annotations[deviceinfo.UsageAnnotation] != ""
		if size := sizeWith(node, annotations); size > deviceinfo.MaxBytes && written {
			t.Errorf("with room for %d bytes the annotations have %d", room, size)
		}
		node.Annotations["huge"] = strings.Repeat("x", deviceinfo.MaxBytes-300)
	}
}
