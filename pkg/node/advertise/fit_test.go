// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maker is a source with devices of one extended resource, of the same name.
type maker struct {
	label string
	info  *types.NodeInfo
}

func (m maker) Label() string { return m.label }
func (m maker) State() plugins.State {
	return plugins.State{Info: m.info, Reported: true, Serving: true}
}
func (maker) Firewall(bool) device.Firewall { return device.Firewall{} }
func (maker) Allocate(context.Context, plugins.Claim) (inject.Addition, error) {
	return inject.Addition{}, nil
}

// makes is a source with so many devices whose IDs have so many bytes.
func makes(label string, devices, idBytes int) maker {
	m := maker{label, types.NewNodeInfo()}
	for i := range devices {
		id := fmt.Sprintf("%0*d", idBytes, i)
		name := types.ResourceName(fmt.Sprintf("resource/group/%s/%s/cards", strings.ReplaceAll(label, "/", "-"), id))
		m.info.Capacity[name], m.info.Allocatable[name] = 1, 1
	}
	m.info.KubeCap[types.ResourceName(label)] = int64(devices)
	m.info.KubeAlloc[types.ResourceName(label)] = int64(devices)
	return m
}

// makers are sources that a test changes.
type makers struct {
	mu      sync.Mutex
	sources []plugins.Source
	changed chan struct{}
}

func (m *makers) set(sources ...maker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = nil
	for _, s := range sources {
		m.sources = append(m.sources, s)
	}
	if m.changed != nil {
		close(m.changed)
	}
	m.changed = make(chan struct{})
}

func (m *makers) Sources() ([]plugins.Source, bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sources, true, m.changed
}

func (*makers) Late(types.ResourceName) (string, bool) { return "", false }

// manage returns a running manager of the sources.
func (m *makers) manage(t *testing.T) *plugins.Manager {
	t.Helper()
	manager := plugins.New("node-1", m)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { manager.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-manager.Synced()
	return manager
}

func TestOnlyThePartsThatDoNotFitAreLeftOut(t *testing.T) {
	odd := maker{"a.b/odd", types.NewNodeInfo()}
	odd.info.Capacity["resource/group/odd/"+types.ResourceName(strings.Repeat("x", 2000))+"/cards"] = 1
	odd.info.KubeCap["a.b/odd"] = 1
	for name, test := range map[string]struct {
		sources []maker
		left    map[string]string // what is said of each that is left out
	}{
		"all fit": {[]maker{makes("a.b/gpu", 8, 10), makes("a.b/nic", 1000, 50)}, nil},
		"one is far too large": {
			[]maker{makes("a.b/huge", 9000, 60), makes("a.b/gpu", 8, 10)},
			map[string]string{"a.b/huge": "262144"},
		},
		"two are too large together": {
			[]maker{makes("a.b/large", 3500, 50), makes("a.b/gpu", 8, 10), makes("a.b/larger", 3600, 50)},
			map[string]string{"a.b/larger": "its 3601 resources have"},
		},
		"one cannot be written": {[]maker{odd, makes("a.b/gpu", 8, 10)}, map[string]string{"a.b/odd": "1024"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &makers{}
			m.set(test.sources...)
			inventory, _ := m.manage(t).Inventory()
			info, left, err := fit(nodeWith("", nil), inventory, deviceinfo.MaxBytes)
			if err != nil {
				t.Fatal(err)
			}
			if err := fits(nodeWith("", nil), info, deviceinfo.MaxBytes); err != nil {
				t.Errorf("it does not fit: %v", err)
			}
			for _, o := range left {
				if want, is := test.left[o.label]; !is || !strings.Contains(o.err.Error(), want) {
					t.Errorf("%s is left out: %v; want %q", o.label, o.err, want)
				}
			}
			if len(left) != len(test.left) {
				t.Errorf("%d are left out, want %d", len(left), len(test.left))
			}
			for _, s := range test.sources {
				_, out := test.left[s.label]
				extended := types.ResourceName(s.label)
				want := s.info.KubeAlloc[extended]
				if out {
					want = 0
				}
				if info.KubeAlloc[extended] != want || info.KubeCap[extended] != s.info.KubeCap[extended] {
					t.Errorf("%s: %d of %d can be allocated, want %d", s.label, info.KubeAlloc[extended],
						info.KubeCap[extended], want)
				}
				for name := range s.info.Capacity {
					if _, there := info.Capacity[name]; there == out {
						t.Fatalf("%s: that %s is there is %t", s.label, name, there)
					}
				}
			}
		})
	}
}

// Two plugins list more than fits. Then a GPU fails, and they leave.
func TestPartsThatDoNotFitLeaveOutNoOthers(t *testing.T) {
	gpus, broken := makes("a.b/gpu", 2, 10), makes("a.b/gpu", 2, 10)
	for name := range broken.info.Allocatable {
		broken.info.Allocatable[name] = 0
		break
	}
	broken.info.KubeAlloc["a.b/gpu"] = 1
	m := &makers{}
	m.set(gpus)
	client := fake.NewClientset(nodeWith("", nil))
	refused, omitted := make(chan error, 10), make(chan []string, 10)
	a := New("node-1", m.manage(t), Options{
		Events: refusedFunc(func(err error) { refused <- err }), Metrics: omittedLabels(omitted),
	})
	run(t, client, a)
	shows := func(what string, want maker) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			info, err := deviceinfo.DecodeNode(get(t, client).Annotations[deviceinfo.Annotation])
			if err == nil {
				for name := range info.Allocatable {
					if !strings.HasPrefix(string(name), "resource/group/a.b-gpu/") {
						delete(info.Allocatable, name)
					}
				}
				wanted := want.info.Allocatable
				count := countOf(get(t, client), "a.b/gpu")
				if cmp.Equal(wanted, info.Allocatable) && count == want.info.KubeAlloc["a.b/gpu"] {
					return
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the node shows %v, %v", what, info, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	shows("at first", gpus)
	m.set(makes("a.b/one", 400, 900), makes("a.b/two", 400, 900), gpus)
	for _, label := range []string{"a.b/one", "a.b/two"} {
		if err := <-refused; !strings.Contains(err.Error(), "the devices of "+label+" are left out") {
			t.Errorf("the node has an event: %v", err)
		}
	}
	if diff := cmp.Diff([]string{"a.b/one", "a.b/two"}, <-omitted); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	if err := a.Check(); err == nil || !strings.Contains(err.Error(), "a.b/two") {
		t.Errorf("health says %v", err)
	}
	m.set(makes("a.b/one", 400, 900), makes("a.b/two", 400, 900), broken)
	shows("when a GPU fails", broken)
	if count := countOf(get(t, client), corev1.ResourceName("a.b/one")); count != 0 {
		t.Errorf("%d of what is left out are offered", count)
	}
	m.set(broken)
	shows("when they have left", broken)
	if diff := cmp.Diff([]string{}, <-omitted); diff != "" {
		t.Errorf("left out in the end (-want +got):\n%s", diff)
	}
	if len(refused) > 0 {
		t.Errorf("said again: %v", <-refused)
	}
}
