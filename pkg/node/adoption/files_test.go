// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
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
	stop    func()

	running sync.WaitGroup
	ctx     context.Context

	mutex sync.Mutex
	held  []grants.Allocation
}

// List implements Lister.
func (n *filesNode) List() []grants.Allocation {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.held
}

// hold replaces the devices that pods hold.
func (n *filesNode) hold(list ...grants.Allocation) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.held = list
}

// startFiles returns the node of a plugin file, with its state file in a directory.
func startFiles(t *testing.T, directory string, k *registry, file *pluginFile) *filesNode {
	t.Helper()
	n := &filesNode{clock: clocktesting.NewFakePassiveClock(time.Now()), kubelet: k}
	var err error
	n.Files, err = NewFiles(FilesOptions{
		Files: file, KubeletDir: k.directory, StateFile: filepath.Join(directory, FilesStateName),
		Grants: n, Clock: n.clock,
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
func (n *filesNode) compares(known map[types.ResourceName]devicemanager.KubeletHolding) {
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
		if contested := now.Contested[gpu]; (contested != nil) != (why != "") ||
			contested != nil && !strings.Contains(contested.Error(), why) {
			return fmt.Errorf("the resource is contested with %v, want %q", contested, why)
		}
		return nil
	})
}

// knows is a kubelet that has this of the GPUs.
func knows(has devicemanager.KubeletHolding) map[types.ResourceName]devicemanager.KubeletHolding {
	return map[types.ResourceName]devicemanager.KubeletHolding{gpu: has}
}

// knowsNothing is a kubelet without plugins.
var knowsNothing = map[types.ResourceName]devicemanager.KubeletHolding{}

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
	n.compares(knows(devicemanager.KubeletHolding{Device: "GPU-1"}))
	n.offers(t, 0, "resource nvidia.com/gpu is registered with the kubelet, too, which has its device GPU-1")
	if !n.KubeletCounts(gpu) {
		t.Error("the kubelet does not count them")
	}
	if walls, _ := n.manager.Firewalls(nil); len(walls) > 0 {
		t.Errorf("containers lack what the kubelet gives them, by %v", walls)
	}
	if label, late := n.Late(cards); label != "gpus" || !late {
		t.Error("a container that holds a device does not wait")
	}

	n.compares(knows(devicemanager.KubeletHolding{Pod: "default/train"}))
	n.offers(t, 0, "pod default/train holds a device of nvidia.com/gpu that the kubelet has allocated")
	n.clock.SetTime(n.clock.Now().Add(devicemanager.RivalInterval - time.Second))
	n.compares(knows(devicemanager.KubeletHolding{}))
	n.offers(t, 0, "the kubelet still remembers a device plugin of nvidia.com/gpu")
	if n.kubelet.devices(gpu) != nil {
		t.Error("it is taken over from a plugin that may be restarting")
	}
	n.clock.SetTime(n.clock.Now().Add(time.Second))
	n.compares(knows(devicemanager.KubeletHolding{}))
	n.kubelet.has(t, gpu, map[string]bool{"kubecri-0": true, "kubecri-1": true})
	n.offers(t, 2, "")
	if walls, _ := n.manager.Firewalls(nil); len(walls) != 1 {
		t.Errorf("containers are kept from devices by %v, want the file's rule", walls)
	}
	n.compares(knows(devicemanager.KubeletHolding{}))
	n.offers(t, 2, "")

	n.compares(knows(devicemanager.KubeletHolding{Device: "GPU-1"}))
	n.offers(t, 0, "registered with the kubelet, too")
	n.kubelet.has(t, gpu, nil)
}

// The kubelet publishes what it counts: as often as each device counts, not as many as there are.
func TestTheKubeletHasAsManyDevicesAsTheNodeCounts(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{gpu})
	n := startFiles(t, directory, k, &pluginFile{})
	n.options.VirtualDevices = advertise.VirtualDevices{gpu: 3}
	n.compares(knows(devicemanager.KubeletHolding{}))
	n.clock.SetTime(n.clock.Now().Add(devicemanager.RivalInterval))
	n.compares(knows(devicemanager.KubeletHolding{}))
	want := map[string]bool{}
	for i := range 2 * 3 {
		want[kubeletstate.PlaceholderID(i)] = true
	}
	n.kubelet.has(t, gpu, want)
	n.offers(t, 2, "")
}

func TestAPluginFileThatHasTakenAResourceOverHasItAgainAfterARestart(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{gpu})
	n := startFiles(t, directory, k, &pluginFile{})
	n.compares(knows(devicemanager.KubeletHolding{}))
	n.clock.SetTime(n.clock.Now().Add(devicemanager.RivalInterval))
	n.compares(knows(devicemanager.KubeletHolding{}))
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
	n.compares(knows(devicemanager.KubeletHolding{}))
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
	n.hold(wants("u", kubelets(gpu, "GPU-1")))
	n.compares(knowsNothing)
	n.offers(t, 0, "pod default/pod-u holds a device of nvidia.com/gpu by a device plugin that registered with kubecri")
	n.hold()
	n.hosted = true
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
	n.hold(wants("u", cards))
	n.compares(knowsNothing)
	if got := n.Holder(gpu, "v"); got != "default/pod-u" {
		t.Errorf("the holder is %q", got)
	}
	if got := n.Holder(gpu, "u") + n.Holder(qat, "v"); got != "" {
		t.Errorf("%q holds something, too", got)
	}
	if now, _ := n.manager.Inventory(); len(n.takenResources()) > 0 || len(now.Contested) > 0 {
		t.Errorf("a file that is gone claims it; contested: %v", now.Contested)
	}
}

// A plugin file is gone, and a pod holds a device of it, when the vendor's plugin registers here:
// which of the plugin's devices that is, is not known.
func TestAPluginOffersNothingWhileAPodHoldsADeviceByAPluginFile(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), nil)
	before := startFiles(t, directory, k, &pluginFile{})
	before.compares(knowsNothing)
	before.offers(t, 2, "")
	before.stop()

	files := startFiles(t, directory, k, &pluginFile{removed: true})
	files.hold(wants("u", cards))
	node := startNodeWith(t, directory, k, &fakeGrants{}, files.Files)
	node.register(t, startPlugin(t, node.socket("p.sock"), dev("a"), dev("b")), gpu)
	node.register(t, startPlugin(t, node.socket("q.sock"), dev("a")), qat)
	node.has(t, gpu, map[string]bool{"none/a": false, "none/b": false})
	node.has(t, qat, map[string]bool{"none/a": true})
	const want = "pod default/pod-u holds a device of nvidia.com/gpu by a plugin file, which has it by another name"
	if err := node.state(gpu).Err; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the state says %v, want %q", err, want)
	}

	files.hold()
	node.controller.takeOver(t.Context())
	node.has(t, gpu, map[string]bool{"none/a": true, "none/b": true})
	if err := node.state(gpu).Err; err != nil {
		t.Error(err)
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
	n.compares(knows(devicemanager.KubeletHolding{}))
	n.clock.SetTime(n.clock.Now().Add(devicemanager.RivalInterval))
	n.compares(knows(devicemanager.KubeletHolding{}))
	k.has(t, gpu, map[string]bool{"kubecri-0": true, "kubecri-1": true})
	return k.allocate(t, gpu, "kubecri-0")
}

func TestPodsThatHoldDevicesOfAPluginHereAreKnown(t *testing.T) {
	directory := tempDirectory(t)
	n := startFiles(t, directory, startRegistrar(t, kubeletDirectory(t, directory), nil), &pluginFile{removed: true})
	hosted := wants("u", kubelets(qat, "a"))
	adopted := hosted
	adopted.Adopted = true
	for name, c := range map[string]struct {
		held      grants.Allocation
		resource  types.ResourceName
		otherThan string
		want      string
	}{
		"another pod":               {hosted, qat, "v", "default/pod-u"},
		"the pod itself":            {hosted, qat, "u", ""},
		"another resource":          {hosted, gpu, "v", ""},
		"a pod that was adopted":    {adopted, qat, "v", "default/pod-u"},
		"a device of a plugin file": {wants("u", cards), gpu, "v", ""},
	} {
		n.hold(c.held)
		if got := n.HostedHolder(c.resource, c.otherThan); got != c.want {
			t.Errorf("%s: %q holds one, want %q", name, got, c.want)
		}
	}
}
