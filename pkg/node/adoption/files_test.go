// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// pluginFile is the transport of one plugin file, which publishes gpu with two devices unless it
// was removed.
type pluginFile struct{ removed bool }

// Sources implements plugins.Transport.
func (p *pluginFile) Sources() ([]plugins.Source, bool, <-chan struct{}) {
	if p.removed {
		return nil, true, nil
	}
	return []plugins.Source{p}, true, nil
}

// Late implements plugins.Transport.
func (p *pluginFile) Late(types.ResourceName) (string, bool) { return "", false }

// Label implements plugins.Source.
func (p *pluginFile) Label() string { return "gpus" }

// State implements plugins.Source.
func (p *pluginFile) State() plugins.State {
	info := types.NewNodeInfo()
	info.KubeCap[gpu], info.KubeAlloc[gpu] = 2, 2
	for _, name := range []types.ResourceName{cards, "resource/group/gpu/g1/cards"} {
		info.Capacity[name], info.Allocatable[name] = 1, 1
	}
	return plugins.State{Info: info, Reported: true, Serving: true}
}

// Firewall implements plugins.Source.
func (p *pluginFile) Firewall(bool) device.Firewall {
	return device.Firewall{Envs: map[string]string{"VISIBLE": "none"}}
}

// Allocate implements plugins.Source.
func (p *pluginFile) Allocate(context.Context, plugins.Claim) (inject.Addition, error) {
	return inject.Addition{Plugin: "gpus"}, nil
}

// filesNode is a node with a plugin file, which compares itself with a kubelet when the test says
// so.
type filesNode struct {
	*Files
	clock   *clocktesting.FakePassiveClock
	kubelet *registry
	manager *plugins.Manager
	hosted  bool // a plugin that registered here has taken gpu over
	held    []grants.Allocation
	stop    func()

	running sync.WaitGroup
	ctx     context.Context

	saying    sync.Mutex
	conflicts []types.ResourceName
	warnings  []string
}

// List implements Lister.
func (n *filesNode) List() []grants.Allocation { return n.held }

// ShowConflicts implements FilesMetrics.
func (n *filesNode) ShowConflicts(names []types.ResourceName) {
	n.saying.Lock()
	defer n.saying.Unlock()
	n.conflicts = names
}

// WarnOfConflict implements FilesEvents.
func (n *filesNode) WarnOfConflict(err error) {
	n.saying.Lock()
	defer n.saying.Unlock()
	n.warnings = append(n.warnings, err.Error())
}

// startFiles returns the node of a plugin file, with its state file in a directory.
func startFiles(t *testing.T, directory string, k *registry, file *pluginFile) *filesNode {
	t.Helper()
	n := &filesNode{clock: clocktesting.NewFakePassiveClock(time.Now()), kubelet: k}
	var err error
	n.Files, err = NewFiles(FilesOptions{
		Files: file, KubeletDir: k.directory, StateFile: filepath.Join(directory, FilesStateName),
		Grants: n, Events: n, Metrics: n, Clock: n.clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.manager = plugins.New("node-1", n.Files)
	ctx, cancel := context.WithCancel(context.Background())
	n.ctx = ctx
	n.running.Go(func() { n.manager.Run(ctx) })
	n.stop = sync.OnceFunc(func() {
		cancel()
		n.running.Wait()
	})
	t.Cleanup(n.stop)
	return n
}

// compares compares the node with a kubelet that has this.
func (n *filesNode) compares(known map[types.ResourceName]devicemanager.KubeletHas) {
	n.compare(n.ctx, known, func(types.ResourceName) bool { return n.hosted }, n.register)
}

// register registers a placeholder.
func (n *filesNode) register(ctx context.Context, name types.ResourceName, claimed claim) {
	p := &placeholder{resource: name, takeover: claimed, directory: n.kubelet.directory, grants: &fakeGrants{}}
	n.running.Go(func() { p.run(ctx) })
}

// offers waits until the node offers so many GPUs, and says why not if it offers none.
func (n *filesNode) offers(t *testing.T, count int64, why string) {
	t.Helper()
	eventually(t, func() error {
		now, _ := n.manager.Inventory()
		if got := now.Node.KubeAlloc[gpu]; got != count {
			return fmt.Errorf("%d GPUs are offered, want %d", got, count)
		}
		if err := n.manager.Check(); (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			return fmt.Errorf("the check says %v, want %q", err, why)
		}
		if count == 0 && !now.Complete {
			return fmt.Errorf("the inventory is not complete, and what the kubelet's plugin serves counts as its own")
		}
		return nil
	})
	if conflicts, _ := n.said(); (len(conflicts) > 0) != (why != "") {
		t.Errorf("the conflicts are %v", conflicts)
	}
}

// said returns the resources of the metric, and the warnings until now.
func (n *filesNode) said() (conflicts []types.ResourceName, warnings []string) {
	n.saying.Lock()
	defer n.saying.Unlock()
	return n.conflicts, slices.Clone(n.warnings)
}

// knows is a kubelet that has this of the GPUs.
func knows(has devicemanager.KubeletHas) map[types.ResourceName]devicemanager.KubeletHas {
	return map[types.ResourceName]devicemanager.KubeletHas{gpu: has}
}

// knowsNothing is a kubelet without plugins.
var knowsNothing = map[types.ResourceName]devicemanager.KubeletHas{}

func TestAPluginFileOffersNothingUntilItIsKnownWhatTheKubeletHas(t *testing.T) {
	directory := tempDirectory(t)
	n := startFiles(t, directory, startRegistrar(t, kubeletDirectory(t, directory), nil), &pluginFile{})
	if now, _ := n.manager.Inventory(); now.Node.KubeCap[gpu] != 0 || now.Complete {
		t.Errorf("%v are offered, complete: %v", now.Node.KubeCap, now.Complete)
	}
	n.compares(knowsNothing)
	n.offers(t, 2, "")
	if n.KubeletCounts(gpu) || n.kubelet.devices(gpu) != nil {
		t.Error("a kubelet that knows nothing needs no placeholder")
	}
}

// A plugin moves from the kubelet to a plugin file, and back.
func TestAPluginFileTakesTheResourceOverWhenTheKubeletsPluginHasLeft(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{gpu})
	n := startFiles(t, directory, k, &pluginFile{})
	n.compares(knows(devicemanager.KubeletHas{Device: "GPU-1"}))
	n.offers(t, 0, "resource nvidia.com/gpu is registered with the kubelet, too, which has its device GPU-1")
	if _, warnings := n.said(); len(warnings) != 1 || !n.KubeletCounts(gpu) {
		t.Errorf("the warnings are %q; the kubelet counts: %v", warnings, n.KubeletCounts(gpu))
	}
	if walls, _ := n.manager.Firewalls(nil); len(walls) > 0 {
		t.Errorf("containers lack what the kubelet gives them, by %v", walls)
	}
	if label, late := n.Late(cards); label != "gpus" || !late {
		t.Error("a container that holds a device does not wait")
	}

	n.compares(knows(devicemanager.KubeletHas{Pod: "default/train"}))
	n.offers(t, 0, "pod default/train holds a device of nvidia.com/gpu that the kubelet has allocated")
	n.clock.SetTime(n.clock.Now().Add(devicemanager.RivalInterval - time.Second))
	n.compares(knows(devicemanager.KubeletHas{}))
	n.offers(t, 0, "the kubelet still remembers a device plugin of nvidia.com/gpu")
	if n.kubelet.devices(gpu) != nil {
		t.Error("it is taken over from a plugin that may be restarting")
	}
	n.clock.SetTime(n.clock.Now().Add(time.Second))
	n.compares(knows(devicemanager.KubeletHas{}))
	n.kubelet.has(t, gpu, map[string]bool{"kubecri-0": true, "kubecri-1": true})
	n.offers(t, 2, "")
	if walls, _ := n.manager.Firewalls(nil); len(walls) != 1 {
		t.Errorf("containers are kept from devices by %v, want the file's rule", walls)
	}
	n.compares(knows(devicemanager.KubeletHas{}))
	n.offers(t, 2, "")

	n.compares(knows(devicemanager.KubeletHas{Device: "GPU-1"}))
	n.offers(t, 0, "registered with the kubelet, too")
	n.kubelet.has(t, gpu, nil)
}

func TestAPluginFileThatHasTakenAResourceOverHasItAgainAfterARestart(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{gpu})
	n := startFiles(t, directory, k, &pluginFile{})
	n.compares(knows(devicemanager.KubeletHas{}))
	n.clock.SetTime(n.clock.Now().Add(devicemanager.RivalInterval))
	n.compares(knows(devicemanager.KubeletHas{}))
	n.offers(t, 2, "")
	k.has(t, gpu, map[string]bool{"kubecri-0": true, "kubecri-1": true})
	n.stop()
	k.has(t, gpu, nil)

	// A pod of the scheduler's holds what the kubelet calls by another ID.
	k.remember(t, []types.ResourceName{gpu}, checkpointEntry{
		"u", "main", gpu, map[string][]string{"-1": {"kubecri-7", "x"}}, placeholderAnswer(t)})
	n = startFiles(t, directory, k, &pluginFile{})
	n.mu.Lock()
	n.place(n.ctx, n.register)
	n.mu.Unlock()
	k.has(t, gpu, map[string]bool{"kubecri-0": true, "kubecri-1": true, "kubecri-7": true})
	n.compares(knows(devicemanager.KubeletHas{}))
	n.offers(t, 2, "")

	// The kubelet restarts, and then without a memory.
	k.stop()
	k.start(t)
	k.has(t, gpu, map[string]bool{"kubecri-0": true, "kubecri-1": true, "kubecri-7": true})
	k.stop()
	k.remember(t, nil)
	k.start(t)
	eventually(t, func() error {
		if n.KubeletCounts(gpu) {
			return fmt.Errorf("the kubelet counts still")
		}
		return nil
	})
	n.offers(t, 2, "")
}

func TestAPluginFileWaitsForPodsAndPluginsThatHaveTheDevicesByOtherNames(t *testing.T) {
	directory := tempDirectory(t)
	n := startFiles(t, directory, startRegistrar(t, kubeletDirectory(t, directory), nil), &pluginFile{})
	n.held = []grants.Allocation{wants("u", kubelets(gpu, "GPU-1"))}
	n.compares(knowsNothing)
	n.offers(t, 0, "pod default/pod-u holds a device of nvidia.com/gpu by a device plugin that registered with kubecri")
	n.held, n.hosted = nil, true
	n.compares(knowsNothing)
	n.offers(t, 0, "a device plugin of nvidia.com/gpu that registered with kubecri serves it")
	n.hosted = false
	n.compares(knowsNothing)
	n.offers(t, 2, "")
}

func TestPodsThatHoldDevicesOfAPluginFileAreKnownWhenTheFileIsGone(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), nil)
	n := startFiles(t, directory, k, &pluginFile{})
	n.compares(knowsNothing)
	n.offers(t, 2, "")
	n.stop()

	n = startFiles(t, directory, k, &pluginFile{removed: true})
	n.held = []grants.Allocation{wants("u", cards)}
	n.compares(knowsNothing)
	if got := n.Holder(gpu, "v"); got != "default/pod-u" {
		t.Errorf("the holder is %q", got)
	}
	if got := n.Holder(gpu, "u") + n.Holder(qat, "v"); got != "" {
		t.Errorf("%q holds something, too", got)
	}
	if conflicts, _ := n.said(); len(n.taken()) > 0 || len(conflicts) > 0 {
		t.Errorf("a file that is gone claims it; conflicts: %v", conflicts)
	}
}

func TestPluginFilesAreComparedWithTheKubeletWhileResourcesAreTakenOver(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), nil)
	files := startFiles(t, directory, k, &pluginFile{})
	node := startNode(t, directory, k, &fakeGrants{})
	node.register(t, startPlugin(t, node.socket("p.sock"), dev("a")), qat)
	node.has(t, qat, map[string]bool{"none/a": true})
	c := New(Options{
		KubeletDir: k.directory, Manager: node.Manager, Grants: &fakeGrants{}, Holders: noHolders{},
		Adopter: node.controller.Adopter, Files: files.Files,
	})
	const times = 2000
	done := make(chan struct{}, 2)
	go func() {
		for range times {
			c.takeOver(t.Context())
		}
		done <- struct{}{}
	}()
	go func() {
		for range times {
			files.compare(t.Context(), knowsNothing, node.IsTakenOver, files.register)
		}
		done <- struct{}{}
	}()
	for range cap(done) {
		select {
		case <-done:
		case <-time.After(timeout):
			panic("both wait for each other") // and what is to be stopped at the end, too
		}
	}
}

// placeholderAnswer is what the kubelet keeps of a placeholder's Allocate.
func placeholderAnswer(t *testing.T) []byte {
	t.Helper()
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{gpu})
	n := startFiles(t, directory, k, &pluginFile{})
	n.compares(knows(devicemanager.KubeletHas{}))
	n.clock.SetTime(n.clock.Now().Add(devicemanager.RivalInterval))
	n.compares(knows(devicemanager.KubeletHas{}))
	k.has(t, gpu, map[string]bool{"kubecri-0": true, "kubecri-1": true})
	return k.allocate(t, gpu, "kubecri-0")
}
