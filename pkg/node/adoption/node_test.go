// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	qat types.ResourceName = "intel.com/qat"
	gpu types.ResourceName = "nvidia.com/gpu"
)

// timeout is for a condition on a slow, busy machine.
const timeout = 30 * time.Second

var dev, unhealthy = fakeplugin.Device, fakeplugin.Unhealthy

// fakeGrants is a checkpoint of granted devices whose reconciliation may fail.
type fakeGrants struct {
	mu    sync.Mutex
	err   error
	calls int
	list  []grants.Allocation
}

// Reconcile implements Grants.
func (g *fakeGrants) Reconcile(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	return g.err
}

func (g *fakeGrants) succeed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = nil
}

// IsUnsaved implements Grants.
func (g *fakeGrants) IsUnsaved() bool { return false }

// List implements Grants.
func (g *fakeGrants) List() []grants.Allocation { return g.list }

// noHolders is a node that has reported that no pod is a holder.
type noHolders struct{}

// Holders implements Holders.
func (noHolders) Holders() (list []deviceinfo.Holder, known bool, changed <-chan struct{}) {
	return nil, true, nil
}

// testNode is a device manager whose clock the test moves, and the controller that takes its
// resources over.
type testNode struct {
	*devicemanager.Manager
	controller *Controller
	clock      *clocktesting.FakeClock
	directory  string
	stop       func()
}

// startNode runs both with directories below directory, until the test ends or it is stopped.
func startNode(t *testing.T, directory string, k *registry, held Grants) *testNode {
	t.Helper()
	return startNodeWith(t, directory, k, held, nil)
}

// startNodeWith is startNode for a node with plugin files.
func startNodeWith(t *testing.T, directory string, k *registry, held Grants, files *Files) *testNode {
	t.Helper()
	n := &testNode{
		clock:     clocktesting.NewFakeClock(time.Now()),
		directory: filepath.Join(directory, devicemanager.DirName),
	}
	options := devicemanager.Options{
		Dir: n.directory, StateFile: filepath.Join(directory, devicemanager.StateFileName), Clock: n.clock,
		KubeletResources: devicemanager.FromKubelet(filepath.Join(k.directory, "none"),
			filepath.Join(k.directory, kubeletstate.CheckpointName)),
	}
	n.Manager = devicemanager.New(options)
	if err := n.Load(); err != nil {
		t.Fatal(err)
	}
	n.controller = New(Options{
		KubeletDir: k.directory, Manager: n.Manager, Grants: held, Holders: noHolders{},
		Adopter: NewAdopter("node-1", k.directory, n.Manager, newFixture()), Files: files,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	running.Go(func() { n.controller.Run(ctx) })
	n.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(n.stop)
	eventually(t, n.Check)
	return n
}

func (n *testNode) socket(name string) string { return filepath.Join(n.directory, name) }

// withhold makes the holders of these devices uncertain.
func (n *testNode) withhold(t *testing.T, devices map[types.ResourceName]string) {
	t.Helper()
	n.controller.Adopter.mu.Lock()
	n.controller.Adopter.withheld = devices
	n.controller.Adopter.mu.Unlock()
	n.controller.takeOver(t.Context())
}

// register registers a plugin.
func (n *testNode) register(t *testing.T, p *testPlugin, resource types.ResourceName) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := fakeplugin.Send(ctx, n.socket(socketName), &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: string(resource),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) state(resource types.ResourceName) devicemanager.State {
	states, _ := n.States()
	for _, s := range states {
		if s.Resource == resource {
			return s
		}
	}
	return devicemanager.State{}
}

// has waits until the resource's devices are those, each with whether it is allocatable, or with
// nil until the node does not have the resource. Devices are written nodes/ID.
func (n *testNode) has(t *testing.T, resource types.ResourceName, want map[string]bool) {
	t.Helper()
	eventually(t, func() error {
		var got map[string]bool
		if info := n.state(resource).Info; info != nil {
			got = map[string]bool{}
			for name := range info.Capacity {
				segments := strings.Split(string(name), "/")
				got[segments[3]+"/"+segments[5]] = info.Allocatable[name] == 1
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%s: devices and whether they are allocatable (-want +got):\n%s", resource, diff)
		}
		return nil
	})
}

// testPlugin is a plugin at a socket.
type testPlugin struct {
	*fakeplugin.Plugin
	socket string
}

// startPlugin serves a plugin at the socket until the test ends or it is stopped.
func startPlugin(t *testing.T, socket string, devices ...*pluginapi.Device) *testPlugin {
	t.Helper()
	p := &testPlugin{fakeplugin.New(devices...), socket}
	p.serve(t)
	return p
}

func (p *testPlugin) serve(t *testing.T) {
	t.Helper()
	if _, err := p.Serve(p.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
}

// tempDirectory is short enough for sockets below it.
func tempDirectory(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "ad")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	return directory
}

// kubeletDirectory is one for a kubelet next to a manager's.
func kubeletDirectory(t *testing.T, directory string) string {
	t.Helper()
	path := filepath.Join(directory, "kubelet")
	if err := os.Mkdir(path, 0o750); err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually waits until the condition returns no error any more.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
