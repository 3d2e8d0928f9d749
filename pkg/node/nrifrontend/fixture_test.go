// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The runtime waits longer than by default, as the disk of a busy machine may be slow.
func TestMain(m *testing.M) {
	adaptation.SetPluginRequestTimeout(2 * adaptation.DefaultPluginRequestTimeout)
	// See TestMain of package nri.
	const stub = "github.com/containerd/nri/pkg/stub.(*stub)."
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(stub+"Start"), goleak.IgnoreAnyFunction(stub+"Start.func6"),
		goleak.IgnoreAnyFunction(stub+"connClosed"),
	)
}

// installed is when kubecri came to the node.
const installed = 1_000_000

const (
	gpu   = "example.com/gpu"
	card0 = "resource/group/gpu/0/cards"
	card1 = "resource/group/gpu/1/cards"
)

// cards is a device plugin with two cards, whose device nodes every machine has.
type cards struct {
	answer  chan struct{} // Allocate answers for each value, or at once if it is closed
	closing sync.Once

	mu    sync.Mutex
	calls []string
}

func (*cards) New() error      { return nil }
func (*cards) Start() error    { return nil }
func (*cards) GetName() string { return "cards" }

func (*cards) UpdateNodeInfo(info *types.NodeInfo) error {
	for _, card := range []types.ResourceName{card0, card1} {
		info.Capacity[card], info.Allocatable[card] = 1, 1
	}
	info.KubeCap[gpu], info.KubeAlloc[gpu] = 2, 2
	return nil
}

func (c *cards) Allocate(
	_ *types.PodInfo, container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	c.mu.Lock()
	from := fmt.Sprint(slices.Sorted(maps.Values(container.AllocateFrom)))
	c.calls = append(c.calls, from)
	c.mu.Unlock()
	<-c.answer
	paths := map[string]string{"[" + card0 + "]": "/dev/null", "[" + card1 + "]": "/dev/zero"}
	return nil, []string{paths[from]}, map[string]string{"CARDS": from}, nil
}

// answers makes it answer at once from now on.
func (c *cards) answers() { c.closing.Do(func() { close(c.answer) }) }

// called returns the calls so far.
func (c *cards) called() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// fixture is the frontend with everything around it, NRI's own runtime library included.
type fixture struct {
	t          *testing.T
	state      string // the directory of the checkpoint
	socket     string
	plugin     *cards
	frontend   *Frontend
	checkpoint *grants.Checkpoint
	view       *View

	registration *nri.Registration

	mu       sync.Mutex
	runtime  *adaptation.Adaptation
	live     map[string]bool // pods by UID
	sandbox  []*api.PodSandbox
	older    map[string]bool  // sandboxes, by ID, that are older than kubecri
	listings int              // of the sandboxes alone
	unlisted []*api.Container // created after kubecri has read the list, before the runtime sends it
	running  []*api.Container // when the runtime starts
	ended    []string
	warnings []string
	end      func(id string) error // what ending a container does
	number   int
}

func (f *fixture) Lookup(_ context.Context, uid string) (pods.Pod, error) {
	if pod, known := f.Get(uid); known {
		return pod, nil
	}
	return pods.Pod{}, pods.ErrUnknown
}

// Get knows pods that are named for what their main container requests. They set no variables:
// those that a container has are its image's.
func (f *fixture) Get(uid string) (pods.Pod, bool) {
	pod := pods.Pod{Namespace: "default", Name: "pod-" + uid, ServiceAccount: "default",
		Containers: []pods.Container{{Name: "main"}}, Variables: map[string][]string{"main": nil}}
	if uid != "plain" {
		pod.Requests = map[string][]types.ResourceName{"main": {gpu}}
	}
	return pod, true
}

func (f *fixture) DeviceResources() (names map[types.ResourceName]bool, all bool) {
	return map[types.ResourceName]bool{gpu: true}, true
}

// Pods lists the pods, as the CRI does.
func (f *fixture) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	listed := map[string]grants.RuntimeState{}
	for uid := range f.live {
		listed[uid] = grants.RuntimeState{Live: true, Namespace: "default", Name: "pod-" + uid}
	}
	return listed, nil
}

// Active implements grants.Pods.
func (f *fixture) Active(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[uid]
}

// newFixture has no runtime yet.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureAt(t, t.TempDir())
}

// newFixtureAt is newFixture with the state of that directory.
func newFixtureAt(t *testing.T, state string) *fixture {
	t.Helper()
	f := &fixture{
		t: t, state: state, socket: filepath.Join(t.TempDir(), "nri.sock"), live: map[string]bool{},
		plugin: &cards{answer: make(chan struct{})}, view: NewView(), end: func(string) error { return nil },
	}
	load := func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		return []pluginload.Loaded[device.Device]{{Name: "cards", Plugin: f.plugin}}, nil
	}
	files := plugins.NewFiles("node-1", load, plugins.DefaultTiming(), nil)
	manager := plugins.New("node-1", files)
	f.checkpoint = grants.New(grants.Options{
		Path: filepath.Join(state, "grants"), Node: "node-1", Runtime: f.view.Runtime(f),
		Pods: f,
	})
	t.Cleanup(func() { f.checkpoint.Close() })
	ctx, stop := context.WithCancel(context.Background())
	devices := NewDevices(ctx, manager)
	f.frontend = New(ctx, Options{
		Devices: devices, View: f.view, Key: f,
		Admission: &admission.Admission{
			NodeName: "node-1", Pods: f, Devices: devices, Grants: f.checkpoint, Responses: f.checkpoint.Responses(),
			HostFS: machine{}, CDI: honoursCDI{},
			Adopted:   noneAdopted{},
			Kubelet:   kubeletstate.Files{Checkpoint: filepath.Join(t.TempDir(), "none")},
			Variables: cdi.NewVariables(t.TempDir()),
			Events:    discards{}, Metrics: discards{},
			Firewall: firewall.New(firewall.Options{
				Plugins: manager, Kubelet: idleKubelet{}, Files: nvidiaFiles{},
			}),
		},
		Source: f, Ender: ender(f.ending),
		Events: f,
	})
	f.registration = nri.New(nri.Options{
		Socket: f.socket, Handler: f.frontend,
		Settings: validatorOff{},
	})
	var running sync.WaitGroup
	running.Go(func() { files.Run(ctx) })
	running.Go(func() { manager.Run(ctx) })
	running.Go(func() { f.registration.Run(ctx) })
	t.Cleanup(func() {
		f.plugin.answers()
		stop()
		running.Wait()
		f.frontend.Close()
		devices.Close()
	})
	<-manager.Synced()
	return f
}

// ender ends containers and sandboxes by a function.
type ender func(ctx context.Context, id string) error

// EndContainer implements Ender.
func (e ender) EndContainer(ctx context.Context, id string) error { return e(ctx, id) }

// EndPod implements Ender.
func (e ender) EndPod(ctx context.Context, id string) error { return e(ctx, id) }

// ending ends a container or a sandbox.
func (f *fixture) ending(_ context.Context, id string) error {
	err := f.end(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.ended = append(f.ended, id)
	}
	return err
}

// List implements Source with what the runtime has when it starts.
func (f *fixture) List(context.Context) (list nrilist.List, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list.Sandboxes = f.sandboxes()
	for _, c := range f.running {
		list.Containers = append(list.Containers, nrilist.Container{
			ID: c.GetId(), Name: c.GetName(), Sandbox: c.GetPodSandboxId(), Created: time.Unix(0, c.GetCreatedAt()),
			Size: nribound.ContainerSize(c),
		})
	}
	return list, nil
}

// Sandboxes implements Source.
func (f *fixture) Sandboxes(context.Context) ([]nrilist.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listings++
	return f.sandboxes(), nil
}

func (f *fixture) sandboxes() (list []nrilist.Sandbox) {
	for _, s := range f.sandbox {
		created := time.Unix(installed+1, 0)
		if f.older[s.GetId()] {
			created = time.Unix(installed-1, 0)
		}
		list = append(list, nrilist.Sandbox{
			PodSandbox: s, Created: created, Size: nribound.SandboxSize(s),
			Ready: f.live[s.GetUid()],
		})
	}
	return list
}

// Container implements Source.
func (f *fixture) Container(_ context.Context, id string) (*api.Container, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.running {
		if c.GetId() == id {
			return c, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

// start starts the runtime, with the containers that run, and waits until kubecri is registered.
func (f *fixture) start() {
	f.t.Helper()
	f.serve()
	await(f.t, "the runtime calls kubecri", func() bool {
		adjustment, err := f.create(f.pod("plain", ""), "NVIDIA_VISIBLE_DEVICES=all")
		return err == nil && len(adjustment.GetEnv()) > 0
	})
}

// serve starts the runtime, with the containers that run.
func (f *fixture) serve() {
	f.t.Helper()
	dir := f.t.TempDir()
	served, err := adaptation.New("containerd", "2.4.2",
		func(ctx context.Context, sync adaptation.SyncCB) error {
			f.mu.Lock()
			f.running, f.unlisted = append(f.running, f.unlisted...), nil
			sandboxes, containers := slices.Clone(f.sandbox), slices.Clone(f.running)
			f.mu.Unlock()
			_, err := sync(ctx, sandboxes, containers)
			return err
		},
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(f.socket), adaptation.WithPluginPath(filepath.Join(dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(dir, "conf.d")))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := served.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(served.Stop)
	f.runtime = served
}

// pod returns the sandbox of a live pod, whose main container was allocated the card, or none.
func (f *fixture) pod(uid, card string) *api.PodSandbox {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[uid] = true
	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	if card != "" {
		container := types.NewContainerInfo()
		container.DevRequests["resource/group/gpu/a/cards"] = 1
		container.AllocateFrom["resource/group/gpu/a/cards"] = types.ResourceName(card)
		value, err := deviceinfo.EncodePod(&types.PodInfo{
			Name: "pod-" + uid, NodeName: "node-1",
			RunningContainers: map[string]types.ContainerInfo{"main": *container},
		})
		if err != nil {
			f.t.Fatal(err)
		}
		annotations[deviceinfo.Annotation] = value
	}
	return &api.PodSandbox{
		Id: "sandbox-" + uid, Uid: uid, Namespace: "default", Name: "pod-" + uid, Annotations: annotations,
	}
}

// create has the runtime create the main container of the pod, as containerd does.
func (f *fixture) create(pod *api.PodSandbox, env ...string) (*api.ContainerAdjustment, error) {
	f.t.Helper()
	f.number++
	container := &api.Container{
		Id: fmt.Sprintf("container-%d", f.number), PodSandboxId: pod.GetId(), Name: "main", Env: env,
	}
	reply, err := f.runtime.CreateContainer(f.t.Context(), &api.CreateContainerRequest{Pod: pod, Container: container})
	if err != nil {
		return nil, err
	}
	container.Annotations = maps.Clone(reply.GetAdjust().GetAnnotations())
	return reply.GetAdjust(), f.runtime.PostCreateContainer(f.t.Context(),
		&api.PostCreateContainerRequest{Pod: pod, Container: container})
}

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// validatorOff is a runtime whose configuration says that its validator is off.
type validatorOff struct{}

// Settings implements nri.SettingsReader.
func (validatorOff) Settings(context.Context) (nri.Settings, error) { return nri.Settings{}, nil }

// noneAdopted has no adopted pods.
type noneAdopted struct{}

// AllocatedTo implements admission.Adopted.
func (noneAdopted) AllocatedTo(string, string) ([]types.ResourceName, error) { return nil, nil }

// honoursCDI is a container runtime that honours CDI devices.
type honoursCDI struct{}

func (honoursCDI) Check() error { return nil }

// KeySince implements Key.
func (f *fixture) KeySince() time.Time { return time.Unix(installed, 0) }

// WarnEnded implements Events.
func (f *fixture) WarnEnded(_ admission.Pod, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.warnings = append(f.warnings, message)
}

// idleKubelet is a kubelet that allocates no devices.
type idleKubelet struct{}

func (idleKubelet) KubeletServes(context.Context, func(types.ResourceName) bool) bool { return false }

// nvidiaFiles has a file of the NVIDIA driver alone.
type nvidiaFiles struct{}

func (nvidiaFiles) Number(path string) (firewall.DeviceNumber, error) {
	return firewall.DeviceNumber{}, errors.New(path + " has no known number")
}

func (nvidiaFiles) Glob(string) []string { return nil }

func (nvidiaFiles) Made(path string) (time.Time, bool) { return time.Time{}, path == "/dev/nvidiactl" }

// discards are the events and metrics of an admission that nothing reads.
type discards struct{}

func (discards) WarnRefused(*corev1.ObjectReference, string)                {}
func (discards) WarnIgnored(*corev1.ObjectReference, string)                {}
func (discards) WarnMistake(*corev1.ObjectReference, string)                {}
func (discards) WarnLeftOut(*corev1.ObjectReference, string)                {}
func (discards) WarnNotSealed(*corev1.ObjectReference, string)              {}
func (discards) ObserveContainer(admission.Outcome)                         {}
func (discards) ObserveFirewall(firewall.Attempt, admission.FirewallAction) {}
func (discards) ObserveSeal(string)                                         {}
