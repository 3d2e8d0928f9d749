// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// holding is a list of holders that a test changes.
type holding struct {
	mu      sync.Mutex
	list    []deviceinfo.Holder
	known   bool
	changed chan struct{}
}

func (h *holding) Holders() ([]deviceinfo.Holder, bool, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list, h.known, h.changed
}

func (h *holding) set(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known, h.list = true, nil
	for _, name := range names {
		h.list = append(h.list, deviceinfo.Holder{UID: "u", Namespace: "team", Name: name,
			Containers: map[string]types.ResourceList{"main": {card0: 1}}})
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

func holderText(t *testing.T, names ...string) string {
	t.Helper()
	h := &holding{changed: make(chan struct{})}
	h.set(names...)
	value, err := deviceinfo.EncodeHolders(h.list)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestHoldersArePublishedWhileThereAreAnyAndOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := nodeWith("", nil)
		there.Annotations[deviceinfo.HoldersAnnotation] = holderText(t, "of-before")
		client := fake.NewClientset(there)
		patches := 0
		h := &holding{changed: make(chan struct{})}
		followed(t, client, newSource(gpus(1)), Options{Holders: h, Metrics: patchedFunc(func(error) { patches++ })},
			func(a *Advertiser, nodes chan<- *corev1.Node) {
				check := func(when, want string, wantPatches int) {
					t.Helper()
					pass(2 * Gap)
					nodes <- get(t, client) // as the kubelet reports other things
					synctest.Wait()
					got, there := get(t, client).Annotations[deviceinfo.HoldersAnnotation]
					if got != want || there != (want != "") || patches != wantPatches || a.Check() != nil {
						t.Errorf("%s: %q after %d patches (%v), want %q after %d", when, got, patches, a.Check(), want,
							wantPatches)
					}
				}
				nodes <- get(t, client)
				check("while they are not known", holderText(t, "of-before"), 2)
				h.set("train")
				check("one", holderText(t, "train"), 3)
				h.set("train")
				check("the same again", holderText(t, "train"), 3)
				h.set()
				check("none", "", 4)
				h.set()
				check("none again", "", 4)
			})
	})
}

func TestHoldersThatDoNotFitKeepTheInventoryAndSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := nodeWith("", nil)
		there.Annotations["huge"] = strings.Repeat("x", deviceinfo.MaxBytes-1000)
		client := fake.NewClientset(there)
		h := &holding{changed: make(chan struct{})}
		h.set(strings.Repeat("train", 200))
		var refused []error
		followed(t, client, newSource(gpus(1)),
			Options{Holders: h, Events: refusedFunc(func(err error) { refused = append(refused, err) })},
			func(a *Advertiser, nodes chan<- *corev1.Node) {
				nodes <- get(t, client)
				pass(2 * Gap)
				node := get(t, client)
				if node.Annotations[deviceinfo.Annotation] != annotationOf(t, gpus(1)) ||
					node.Annotations[deviceinfo.HoldersAnnotation] != "" {
					t.Errorf("annotations %.200v", node.Annotations)
				}
				if err := a.Check(); err == nil || len(refused) != 1 || err.Error() != refused[0].Error() ||
					!strings.Contains(err.Error(), `1 pods that hold devices of node "node-1"`) {
					t.Errorf("health %v, refused %v", err, refused)
				}
				h.set("train")
				pass(2 * Gap)
				if got := get(t, client).Annotations[deviceinfo.HoldersAnnotation]; got != holderText(t, "train") ||
					a.Check() != nil {
					t.Errorf("once they fit: %q, %v", got, a.Check())
				}
			})
	})
}

func TestHoldersAreWithdrawnWithTheInventory(t *testing.T) {
	node := nodeWith(annotationOf(t, gpus(1)), nil)
	node.Annotations[deviceinfo.HoldersAnnotation] = holderText(t, "train")
	client := fake.NewClientset(node)
	if _, _, err := Withdraw(t.Context(), client, "node-1"); err != nil {
		t.Fatal(err)
	}
	if got, there := get(t, client).Annotations[deviceinfo.HoldersAnnotation]; there {
		t.Errorf("still there: %s", got)
	}
}
