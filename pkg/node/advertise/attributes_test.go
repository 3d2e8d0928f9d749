// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

const (
	described = "resource/group/gpu/0"
	valueOf0  = `{"gpu/0":{"cudaComputeCapability":{"version":"9.0.0"},"productName":"A"}}`
)

// describe returns an inventory of so many GPUs, the first of which is described, as is one that
// the node does not have.
func describe(count int) *plugins.Inventory {
	inventory := plugins.Inventory{Node: gpus(count)}
	inventory.Attributes = map[string]device.Attributes{
		described:              {"productName": device.String("A"), "cudaComputeCapability": device.Version("9.0.0")},
		"resource/group/gpu/9": {"productName": device.String("B")},
	}
	return &inventory
}

// replace makes the source have another inventory.
func (s *source) replace(inventory *plugins.Inventory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = inventory
	close(s.changed)
	s.changed = make(chan struct{})
}

func TestTheNodeDescribesItsDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		s := newSource(nil)
		s.replace(describe(2))
		followed(t, client, s, Options{}, func(a *Advertiser, nodes chan<- *corev1.Node) {
			check := func(when, want string) {
				t.Helper()
				pass(2 * Gap)
				got, there := get(t, client).Annotations[deviceinfo.AttributesAnnotation]
				if got != want || there != (want != "") || a.Check() != nil {
					t.Errorf("%s: %q (%v), want %q", when, got, a.Check(), want)
				}
			}
			nodes <- get(t, client)
			check("at first", valueOf0)
			client.ClearActions()
			s.replace(describe(2))
			nodes <- get(t, client)
			check("the same again", valueOf0)
			for _, action := range client.Actions() {
				if action.GetVerb() == "patch" {
					t.Errorf("the same attributes are written again: %v", action)
				}
			}
			s.set(gpus(2))
			check("no attributes", "")
			s.replace(describe(2))
			check("attributes again", valueOf0)
			s.replace(describe(0))
			check("no devices", "")
		})
	})
}

func TestAttributesLeaveRoomForEverythingElse(t *testing.T) {
	node := nodeWith("", nil)
	node.Annotations["huge"] = strings.Repeat("x", deviceinfo.MaxBytes-2000)
	before := sizeWith(node, nil)
	node.Annotations[deviceinfo.AttributesAnnotation] = strings.Repeat("x", 1900)
	if now := sizeWith(node, nil); now != before {
		t.Errorf("attributes take %d bytes from the others", now-before)
	}
	r := attributesReport{describe(2).Attributes}
	annotations := map[string]string{}
	left := r.addTo(annotations, node, gpus(2))
	if got := annotations[deviceinfo.AttributesAnnotation]; got != valueOf0 || left != nil {
		t.Errorf("with room they are %q, without %v", got, left)
	}
	node.Annotations["more"] = strings.Repeat("x", deviceinfo.MaxBytes-before-60)
	left = r.addTo(annotations, node, gpus(2))
	if got := annotations[deviceinfo.AttributesAnnotation]; got != "" || len(left) != 1 || left[0] != "gpu/0" {
		t.Errorf("without room they are %q, without %v", got, left)
	}
	if size := sizeWith(node, annotations); size > deviceinfo.MaxBytes {
		t.Errorf("the annotations have %d bytes", size)
	}
}
