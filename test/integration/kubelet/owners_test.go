// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/node/adoption"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gpu types.ResourceName = "nvidia.com/gpu"

// pluginFile is the transport of one plugin file, which publishes gpu with two devices unless it
// was removed.
type pluginFile struct {
	removed bool
	loaded  <-chan struct{} // closed when it is loaded; nil if that is so from the start
}

// Sources implements plugins.Transport.
func (p *pluginFile) Sources() (now []plugins.Source, loaded bool, changed <-chan struct{}) {
	if p.loaded != nil {
		select {
		case <-p.loaded:
		default:
			return nil, false, p.loaded
		}
	}
	if p.removed {
		return nil, true, nil
	}
	return []plugins.Source{p}, true, nil
}

// Late implements plugins.Transport.
func (p *pluginFile) Late(types.ResourceName) (label string, late bool) { return "", false }

// Label implements plugins.Source.
func (p *pluginFile) Label() string { return "gpus" }

// State implements plugins.Source.
func (p *pluginFile) State() plugins.State {
	info := types.NewNodeInfo()
	info.KubeCap[gpu], info.KubeAlloc[gpu] = 2, 2
	return plugins.State{Info: info, Reported: true, Serving: true}
}

// Firewall implements plugins.Source.
func (p *pluginFile) Firewall(bool) device.Firewall { return device.Firewall{} }

// Allocate implements plugins.Source.
func (p *pluginFile) Allocate(context.Context, plugins.Claim) (inject.Addition, error) {
	return inject.Addition{Plugin: "gpus"}, nil
}

// noGrants is a checkpoint of granted devices without any.
type noGrants struct{}

func (noGrants) Reconcile(context.Context) error { return nil }
func (noGrants) IsUnsaved() bool                 { return false }
func (noGrants) List() []grants.Allocation       { return nil }

// noHolders is a node that has reported that no pod is a holder.
type noHolders struct{}

func (noHolders) Holders() (list []deviceinfo.Holder, known bool, changed <-chan struct{}) {
	return nil, true, nil
}

// kubecri is the part of kubecri that says who offers a resource.
type kubecri struct {
	*adoption.Files
	plugins *plugins.Manager
	hosted  *devicemanager.Manager
	stop    func()

	mu       sync.Mutex
	warnings []string
}

// readings are what kubecri reads of the kubelet; nothing if it is blind.
type readings struct {
	devicemanager.KubeletResources
	blind bool
}

// Resources implements devicemanager.KubeletResources.
func (r readings) Resources(ctx context.Context) (map[types.ResourceName]devicemanager.KubeletHolding, error) {
	if r.blind {
		return nil, nil
	}
	return r.KubeletResources.Resources(ctx)
}

// startKubecri starts it with its state in a directory. With blind it does not know what the
// kubelet has, as when another plugin's list arrives between a placeholder's query and its own
// list.
func startKubecri(t *testing.T, k *manager, directory string, file *pluginFile, blind bool) *kubecri {
	t.Helper()
	c := &kubecri{}
	read := readings{devicemanager.FromKubelet(k.podResources(), k.checkpoint()), blind}
	devices := devicemanager.New(devicemanager.Options{
		Dir: filepath.Join(directory, devicemanager.DirName), KubeletResources: read,
		StateFile: filepath.Join(directory, devicemanager.StateFileName),
	})
	c.hosted = devices
	var err error
	c.Files, err = adoption.NewFiles(adoption.FilesOptions{
		Files: file, KubeletDir: k.directory, StateFile: filepath.Join(directory, adoption.FilesStateName),
		Grants: noGrants{}, Kubelet: devices, Events: c,
	})
	if err != nil {
		t.Fatal(err)
	}
	controller := adoption.New(adoption.Options{
		KubeletDir: k.directory, Manager: devices, Grants: noGrants{}, Holders: noHolders{}, Files: c.Files,
		Adopter: adoption.NewAdopter("node-1", k.directory, devices, nil),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c.plugins = plugins.New("node-1", c.Files)
	running.Go(func() { c.plugins.Run(ctx) })
	running.Go(func() { devices.Run(ctx) })
	running.Go(func() { controller.Run(ctx) })
	c.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

// WarnOfConflict implements adoption.FilesEvents.
func (c *kubecri) WarnOfConflict(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, err.Error())
}

// contests waits until two have gpu, for a reason.
func (c *kubecri) contests(t *testing.T, because string) {
	t.Helper()
	eventually(t, func() error {
		now, _ := c.plugins.Inventory()
		if err := now.Contested[gpu]; err == nil || !strings.Contains(err.Error(), because) {
			return fmt.Errorf("%s is contested with %v, want %q", gpu, err, because)
		}
		return nil
	})
}

// warned waits until the node was warned that it has none of a resource.
func (c *kubecri) warned(t *testing.T, of string) {
	t.Helper()
	eventually(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.ContainsFunc(c.warnings, func(w string) bool { return strings.Contains(w, of) }) {
			return fmt.Errorf("the warnings are %q, want one of %q", c.warnings, of)
		}
		return nil
	})
}

// left waits until kubecri does not have the kubelet count gpu.
func (c *kubecri) left(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if c.KubeletCounts(gpu) {
			return fmt.Errorf("kubecri has the kubelet count %s", gpu)
		}
		return nil
	})
}

// taken returns a directory with the state of a kubecri that had taken gpu over.
func taken(t *testing.T) string {
	t.Helper()
	directory := tempDirectory(t)
	state := statefile.File{Path: filepath.Join(directory, adoption.FilesStateName), Kind: "files"}
	content := map[string]any{
		"taken": []types.ResourceName{gpu}, "counts": map[types.ResourceName]int64{gpu: 2},
	}
	if err := state.Save(content); err != nil {
		t.Fatal(err)
	}
	return directory
}

// registerVendor registers a vendor's plugin with the kubelet, which lists its devices once.
func registerVendor(t *testing.T, k *manager, name string) *fakeplugin.Plugin {
	t.Helper()
	p := fakeplugin.New(fakeplugin.Device("GPU-0"), fakeplugin.Device("GPU-1"))
	if _, err := p.Serve(filepath.Join(k.directory, name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := fakeplugin.Register(ctx, k.socket(), name, gpu); err != nil {
		t.Fatal(err)
	}
	k.has(t, "GPU-0", "GPU-1")
	eventually(t, func() error {
		if state, err := kubeletstate.Read(k.checkpoint()); err != nil || !state.Remembers(gpu) {
			return fmt.Errorf("the kubelet's checkpoint does not have the plugin (error %v)", err)
		}
		return nil
	})
	return p
}

// A kubecri that starts registers in the place of the one before it, before its plugin files are
// loaded.
func TestAKubecriThatStartsLeavesAResourceToThePluginAtTheKubelet(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{true, false} {
		k := startManager(t, tempDirectory(t))
		vendor := registerVendor(t, k, "vendor.sock")
		loaded, directory := make(chan struct{}), taken(t)
		c := startKubecri(t, k, directory, &pluginFile{removed: removed, loaded: loaded}, false)
		eventually(t, func() error {
			state, err := os.ReadFile(filepath.Join(directory, adoption.FilesStateName))
			if err == nil && !strings.Contains(string(state), `"taken": []`) {
				err = fmt.Errorf("the state is %s", state)
			}
			return err
		})
		close(loaded)
		if removed {
			c.left(t)
		} else {
			c.contests(t, "nvidia.com/gpu is registered with the kubelet, too, which has its device GPU-0")
		}
		k.admit(t, "pod")
		if calls, _ := vendor.Calls(); len(calls) != 1 || k.allocated("pod") != calls[0][0] {
			t.Errorf("the kubelet allocated %s, and called the plugin for %v", k.allocated("pod"), calls)
		}
		c.stop()
		k.has(t, "GPU-0", "GPU-1")
	}
}

func TestAPluginThatComesToTheKubeletServesInThePlaceOfKubecri(t *testing.T) {
	t.Parallel()
	k := startManager(t, tempDirectory(t))
	registerVendor(t, k, "old.sock").Stop()
	k.has(t)
	c := startKubecri(t, k, taken(t), &pluginFile{}, false)
	k.has(t, "kubecri-0", "kubecri-1")
	k.admit(t, "before")
	if got := k.allocated("before"); !kubeletstate.IsPlaceholderID(got) {
		t.Errorf("the kubelet allocated %s in the place of a placeholder", got)
	}
	vendor := registerVendor(t, k, "vendor.sock")
	k.admit(t, "meanwhile")
	c.contests(t, "nvidia.com/gpu is registered with the kubelet, too, which has its device GPU-0")
	k.admit(t, "after")
	if calls, _ := vendor.Calls(); len(calls) != 2 {
		t.Errorf("the kubelet called the plugin for %v, want two containers", calls)
	}
	k.has(t, "GPU-0", "GPU-1")
}

// The kubelet keeps the list that came last, and requests none of the other plugin again when the
// placeholder that sent it leaves.
func TestAPluginIsNeverCalledWithDevicesOfKubecriThatHasLeft(t *testing.T) {
	t.Parallel()
	k := startManager(t, tempDirectory(t))
	vendor := registerVendor(t, k, "vendor.sock")
	directory := taken(t)
	c := startKubecri(t, k, directory, &pluginFile{}, true)
	k.has(t, "kubecri-0", "kubecri-1")
	c.stop()
	k.has(t, "kubecri-0", "kubecri-1")

	c = startKubecri(t, k, tempDirectory(t), &pluginFile{removed: true}, false)
	k.has(t)
	c.warned(t, "the node has none of nvidia.com/gpu until that plugin registers again; restart it")
	vendor.Stop()
	registerVendor(t, k, "again.sock")
	k.admit(t, "pod")
	if got := k.allocated("pod"); !strings.HasPrefix(got, "GPU-") {
		t.Errorf("the kubelet allocated %s", got)
	}
}

// kubecri has taken a resource over for the plugin that moved to it. The kubelet calls the plugin
// that registered last, and has the same devices with both.
func TestAPluginThatComesBackToTheKubeletServesInThePlaceOfOneAtKubecri(t *testing.T) {
	t.Parallel()
	k := startManager(t, tempDirectory(t))
	registerVendor(t, k, "old.sock").Stop()
	k.has(t)
	directory := tempDirectory(t)
	c := startKubecri(t, k, directory, &pluginFile{removed: true}, false)
	moved := fakeplugin.New(fakeplugin.Device("GPU-0"), fakeplugin.Device("GPU-1"))
	at := filepath.Join(directory, devicemanager.DirName)
	eventually(t, c.hosted.Check)
	if _, err := moved.Serve(filepath.Join(at, "moved.sock")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moved.Stop)
	if err := fakeplugin.Register(t.Context(), filepath.Join(at, "kubelet.sock"), "moved.sock", gpu); err != nil {
		t.Fatal(err)
	}
	k.has(t, "GPU-0", "GPU-1")
	vendor := registerVendor(t, k, "vendor.sock")
	k.admit(t, "both")
	if calls, _ := vendor.Calls(); len(calls) != 1 {
		t.Fatalf("the kubelet called the plugin for %v, want one container", calls)
	}

	c.hosted.Yield(t.Context(), gpu, "both")
	eventually(t, func() error {
		states, _ := c.hosted.States()
		if err := states[0].ErrWithheld(); err == nil || !strings.Contains(err.Error(), "which has its device GPU-0") {
			return fmt.Errorf("the state says %v", err)
		}
		return nil
	})
	k.admit(t, "after")
	if calls, _ := vendor.Calls(); len(calls) != 2 {
		t.Errorf("the kubelet called the plugin for %v, want two containers", calls)
	}
	k.has(t, "GPU-0", "GPU-1")
}
