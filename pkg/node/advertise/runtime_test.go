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
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// enforcing is a runtime that a test changes.
type enforcing struct {
	mu              sync.Mutex
	enforced, known bool
	changed         chan struct{}
}

func (e *enforcing) Enforced() (bool, bool, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.enforced, e.known, e.changed
}

func (e *enforcing) set(enforced, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.enforced, e.known = enforced, known
	close(e.changed)
	e.changed = make(chan struct{})
}

func TestANodeSaysThatKubecriCanBeRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		runtime := &enforcing{changed: make(chan struct{})}
		source := newSource(gpus(1))
		followed(t, client, source, Options{Runtime: runtime},
			func(a *Advertiser, nodes chan<- *corev1.Node) {
				check := func(when, want string) {
					t.Helper()
					pass(2 * Gap)
					nodes <- get(t, client)
					synctest.Wait()
					got, there := get(t, client).Annotations[deviceinfo.RequiredPluginAnnotation]
					if got != want || there != (want != "") || a.Check() != nil {
						t.Errorf("%s: %q (%v), want %q", when, got, a.Check(), want)
					}
				}
				nodes <- get(t, client)
				check("before it is known", "")
				runtime.set(true, true)
				check("with a validator", deviceinfo.NRIPlugin)
				runtime.set(true, false)
				check("while the runtime restarts", deviceinfo.NRIPlugin)
				runtime.set(true, true)
				source.set(types.NewNodeInfo())
				check("without a device", "")
				source.set(gpus(1))
				check("with a device again", deviceinfo.NRIPlugin)
				runtime.set(false, true)
				check("without a validator", "")
			})
	})
}

func TestANodeThatDoesNotRegisterWithItsRuntimeRequiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := nodeWith("", nil)
		before.Annotations = map[string]string{deviceinfo.RequiredPluginAnnotation: deviceinfo.NRIPlugin}
		client := fake.NewClientset(before)
		followed(t, client, newSource(gpus(1)), Options{}, func(a *Advertiser, nodes chan<- *corev1.Node) {
			nodes <- get(t, client)
			pass(2 * Gap)
			got, there := get(t, client).Annotations[deviceinfo.RequiredPluginAnnotation]
			if there || a.Check() != nil {
				t.Errorf("kubecri with --nri-socket= leaves %q (%v)", got, a.Check())
			}
		})
	})
}
