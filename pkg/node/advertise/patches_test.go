// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

// followed runs an advertiser in a bubble of its own time, with nodes as the watch's events, and
// then story; what story has set going has settled when synctest.Wait returns.
func followed(t *testing.T, client *fake.Clientset, s *source, options Options,
	story func(a *Advertiser, nodes chan<- *corev1.Node)) {
	t.Helper()
	a := New("node-1", s, options)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	nodes := make(chan *corev1.Node)
	var following sync.WaitGroup
	following.Go(func() { (&controller{Advertiser: a, client: client}).run(ctx, nodes) })
	story(a, nodes)
	cancel()
	following.Wait()
}

// pass lets time pass in a bubble of its own time, and all be done that is due by then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAChangeIsTwoPatchesAndARepetitionNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		patches := 0
		s := newSource(gpus(1))
		followed(t, client, s, Options{Metrics: patchedFunc(func(error) { patches++ })},
			func(_ *Advertiser, nodes chan<- *corev1.Node) {
				nodes <- nodeWith("", nil)
				unhealthy := gpus(3)
				unhealthy.Allocatable[card0], unhealthy.Allocatable[gpu], unhealthy.KubeAlloc[gpu] = 0, 2, 2
				for i, change := range []func(){
					func() {},
					func() { s.set(gpus(3)) },
					func() { s.set(unhealthy) },
					func() { s.set(gpus(0)) },
					func() { s.set(gpus(3)) },
				} {
					change()
					pass(2 * Gap)
					if want := 2 * (i + 1); patches != want {
						t.Errorf("%d patches after %d changes, want %d", patches, i+1, want)
					}
					// a plugin that reports the same list again and again, and a kubelet that
					// reports other things
					for range 10 {
						s.set(s.now.Node.Clone())
						synctest.Wait()
						nodes <- get(t, client)
						synctest.Wait()
					}
					if want := 2 * (i + 1); patches != want {
						t.Errorf("%d patches after %d changes and much repetition, want %d", patches, i+1, want)
					}
				}
			})
	})
}

func TestAnInventoryThatCannotBePublishedIsReportedOnceAndLeavesWhatWasPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		var reported []string
		s := newSource(gpus(2))
		report := func(err error) { reported = append(reported, err.Error()) }
		followed(t, client, s, Options{Events: refusedFunc(report)},
			func(a *Advertiser, nodes chan<- *corev1.Node) {
				nodes <- nodeWith("", nil)
				synctest.Wait()
				if a.Check() == nil || !a.Published().IsZero() {
					t.Errorf("published before the second patch, says health: %v", a.Check())
				}
				pass(Gap)
				published := a.Published()
				if published.IsZero() || a.Check() != nil {
					t.Fatalf("not published: %v", a.Check())
				}
				s.set(gpus(20_000))
				pass(10 * time.Minute) // the bubble's time: many tries
				if len(reported) != 1 || !strings.Contains(reported[0], "20001 resources") {
					t.Errorf("reported %q, want one that says how many resources there are", reported)
				}
				if a.Check() == nil || !a.Published().Equal(published) {
					t.Errorf("health %v, published at %v", a.Check(), a.Published())
				}
				if got := get(t, client).Annotations[deviceinfo.Annotation]; got != annotationOf(t, gpus(2)) {
					t.Errorf("the annotation is now %.200s", got)
				}
				s.set(gpus(3))
				pass(2 * time.Second)
				if a.Check() != nil || !a.Published().After(published) {
					t.Errorf("with fewer again: health %v, published at %v", a.Check(), a.Published())
				}
			})
	})
}

// Its health is damped: it is not offered, and the node is left alone.
func TestADeviceThatFlapsCostsFewPatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		healthy, unhealthy := makes("a.b/gpu", 2, 10), makes("a.b/gpu", 2, 10)
		for name := range unhealthy.info.Allocatable {
			unhealthy.info.Allocatable[name] = 0
			break
		}
		unhealthy.info.KubeAlloc["a.b/gpu"] = 1
		m := &makers{}
		m.set(healthy)
		manager := plugins.New("node-1", m)
		damper := plugins.NewDamper(manager)
		client := fake.NewClientset(nodeWith("", nil))
		patches := 0
		a := New("node-1", damper, Options{Metrics: patchedFunc(func(error) { patches++ })})
		ctx, cancel := context.WithCancel(t.Context())
		nodes := make(chan *corev1.Node)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { manager.Run(ctx) })
		running.Go(func() { damper.Run(ctx) })
		running.Go(func() { (&controller{Advertiser: a, client: client}).run(ctx, nodes) })
		nodes <- nodeWith("", nil)
		pass(time.Minute)
		patches = 0
		for range 30 { // in 22 seconds
			m.set(unhealthy)
			pass(370 * time.Millisecond)
			if countOf(get(t, client), "a.b/gpu") == 0 {
				t.Fatal("the device that is healthy is not offered")
			}
			m.set(healthy)
			pass(370 * time.Millisecond)
		}
		if patches > 4 {
			t.Errorf("the node was patched %d times in 22 s", patches)
		}
		info, err := deviceinfo.DecodeNode(get(t, client).Annotations[deviceinfo.Annotation])
		if offered := info.Allocatable["a.b/gpu"]; err != nil || offered != 1 {
			t.Errorf("%d devices are offered, %v", offered, err)
		}
		pass(time.Hour)
		if count := countOf(get(t, client), "a.b/gpu"); count != 2 {
			t.Errorf("in the end %d devices are offered", count)
		}
	})
}

func TestAnAPIServerThatIsAwayIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeWith("", nil))
		client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, apiruntime.Object, error) {
			return true, nil, errors.New("away")
		})
		fail := func(err error) { t.Errorf("got %v", err) }
		followed(t, client, newSource(gpus(1)), Options{Events: refusedFunc(fail)},
			func(a *Advertiser, nodes chan<- *corev1.Node) {
				nodes <- nodeWith("", nil)
				synctest.Wait()
				if a.Check() == nil || !a.Published().IsZero() {
					t.Errorf("health %v, published at %v", a.Check(), a.Published())
				}
			})
	})
}

func TestAThousandDevicesArePublished(t *testing.T) {
	client := fake.NewClientset(nodeWith("", nil))
	_, patches := advertised(t, client, newSource(gpus(1_000)))
	if err := next(t, patches); err != nil {
		t.Fatal(err)
	}
	info, err := deviceinfo.DecodeNode(get(t, client).Annotations[deviceinfo.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Allocatable) != 1_001 {
		t.Errorf("%d resources", len(info.Allocatable))
	}
}
