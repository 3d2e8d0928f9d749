// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/images"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	gpu   = "example.com/gpu"
	card0 = "resource/group/gpu/0/cards"
	card1 = "resource/group/gpu/1/cards"
	sick  = "resource/group/gpu/2/cards"
	kind  = "resource/group/gpu/0/kind" // a mask by its scorer

	widget  = "example.com/widget"
	widget0 = "resource/group/widget/0/pieces"
)

// fixture is an admission with everything around it.
type fixture struct {
	CRI
	pods     knownPods
	live     livePods
	adopted  []grants.Allocation                  // by the kubelet
	encoded  map[string][]grants.RuntimeContainer // what containers of live pods carry, by UID
	warnings []string
	ignored  []string
	mistakes []string
	leftOut  []string
	attempts []string

	notSealed, verified []string // warnings and results of seals

	kubelets map[types.ResourceName]bool // what the kubelet serves
	yielded  []types.ResourceName        // to plugins at the kubelet
	files    map[string]bool             // device files of the node
	wall     *firewall.Firewall          // on if it is the admission's
	outcomes []Outcome
	plugin   *cards

	withImage bool // the frontend sees the image's variables

	injections   []firewall.KubeletInjection // of the kubelet's plugins
	claimed      map[string]string           // drivers by CDI device
	image        []*runtimeapi.KeyValue      // variables of the image
	sandbox      map[string]string           // annotations that the runtime keeps of the sandbox
	variablesErr error                       // why there is no CDI device that sets variables
	unknown      error                       // why none of gifts, claims and sandbox is known
	noImage      error                       // why the image is not
	sizes        images.Image                // of the image's parts
	cdiErr       error                       // why the runtime has no CDI devices
}

// KubeletServes implements firewall.Kubelet.
func (f *fixture) KubeletServes(_ context.Context, is func(types.ResourceName) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(f.kubelets)), is)
}

// Yield implements Rivals.
func (f *fixture) Yield(_ context.Context, resource types.ResourceName, _ string) {
	f.yielded = append(f.yielded, resource)
}

// Number implements firewall.DeviceFiles: the number of no file is known.
func (f *fixture) Number(string) (firewall.DeviceNumber, error) {
	return firewall.DeviceNumber{}, errors.New("none")
}

// Glob implements firewall.DeviceFiles.
func (f *fixture) Glob(string) []string { return nil }

// Exists implements firewall.DeviceFiles.
func (f *fixture) Made(path string) (time.Time, bool) { return time.Time{}, f.files[path] }

// Pods is the runtime as the grants see it.
func (f *fixture) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	seen := map[string]grants.RuntimeState{}
	for uid := range f.live {
		seen[uid] = grants.RuntimeState{
			Live: true, Namespace: "default", Name: "pod-" + uid, Containers: f.encoded[uid],
		}
	}
	return seen, nil
}

// newFixture has cards and widgets, or nothing but a plugin file that could not be loaded.
func newFixture(t *testing.T, loaded bool) *fixture {
	t.Helper()
	plugin := &cards{}
	f := newFixtureOf(t, func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		if !loaded {
			return nil, []error{errors.New("every plugin is broken")}
		}
		return []pluginload.Loaded[device.Device]{
			{Name: "cards", Plugin: plugin},
			{Name: "widgets", Plugin: &widgets{}},
		}, nil
	})
	f.plugin = plugin
	return f
}

// fixtureWith has the plugins, and is ready when each has reported its devices.
func fixtureWith(t testing.TB, loaded ...device.Device) *fixture {
	t.Helper()
	f := newFixtureOf(t, func(context.Context) (all []pluginload.Loaded[device.Device], _ []error) {
		for _, plugin := range loaded {
			all = append(all, pluginload.Loaded[device.Device]{Name: plugin.GetName(), Plugin: plugin})
		}
		return all, nil
	})
	<-f.Devices.Synced()
	f.waitForDevices(t, len(loaded))
	return f
}

// newFixtureOf has what load loads, and the hosted plugins if there are any.
func newFixtureOf(t testing.TB, load plugins.Load, served ...devicemanager.Plugins) *fixture {
	t.Helper()
	return newFixtureAt(t, filepath.Join(t.TempDir(), "grants"), "", load, served...)
}

// newFixtureAt is newFixtureOf in a boot of the machine that may find a checkpoint.
func newFixtureAt(t testing.TB, path, boot string, load plugins.Load, served ...devicemanager.Plugins) *fixture {
	t.Helper()
	f := &fixture{pods: knownPods{}, live: livePods{}}
	files := plugins.NewFiles("node-1", load, plugins.DefaultTiming(), nil)
	transports := []plugins.Transport{files}
	record := grants.New(grants.Options{
		Path: path, Boot: boot, Node: "node-1", Runtime: runtimeOf{f},
		Pods: f.live, Origin: origin{f},
	})
	t.Cleanup(func() { record.Close() })
	for _, p := range served {
		transports = append(transports, devicemanager.NewTransport(p, record.Responses()))
	}
	manager := plugins.New("node-1", transports...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { files.Run(ctx) })
	running.Go(func() { manager.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	f.wall = firewall.New(firewall.Options{
		Plugins: manager,
		Kubelet: f, Files: f,
	})
	registry := registryOf(manager)
	registry.NotePublished([]string{"example.com/before"})
	f.CRI = CRI{&Admission{
		NodeName: "node-1", Pods: nodePods{f.pods, registry}, Devices: manager, Grants: record,
		Adopted:   adoptedDevices(func(string, string) ([]types.ResourceName, error) { return nil, nil }),
		Responses: record.Responses(), HostFS: devNodes{}, CDI: f, Images: f, Variables: f,
		Kubelet: kubelet{f}, Sandboxes: sandboxes{f}, Rivals: f,
		Events: f, Metrics: f, Refusals: NewRefusals(),
	}}
	return f
}

// Check implements CDI.
func (f *fixture) Check() error { return f.cdiErr }

// Image implements Images.
func (f *fixture) Image(context.Context, *runtimeapi.ImageSpec) (images.Image, error) {
	image := f.sizes
	image.Variables = f.image
	return image, f.noImage
}

// Device implements Variables.
func (f *fixture) Device(variables []string) (string, error) {
	return "kubedevice.io/variables=" + strings.Join(variables, "+"), f.variablesErr
}

// WarnRefused implements Events.
func (f *fixture) WarnRefused(_ *corev1.ObjectReference, message string) {
	f.warnings = append(f.warnings, message)
}

// WarnIgnored implements Events.
func (f *fixture) WarnIgnored(_ *corev1.ObjectReference, message string) {
	f.ignored = append(f.ignored, message)
}

// WarnMistake implements Events.
func (f *fixture) WarnMistake(_ *corev1.ObjectReference, message string) {
	f.mistakes = append(f.mistakes, message)
}

// WarnLeftOut implements Events.
func (f *fixture) WarnLeftOut(_ *corev1.ObjectReference, message string) {
	f.leftOut = append(f.leftOut, message)
}

// WarnNotSealed implements Events.
func (f *fixture) WarnNotSealed(_ *corev1.ObjectReference, message string) {
	f.notSealed = append(f.notSealed, message)
}

// ObserveContainer implements Metrics.
func (f *fixture) ObserveContainer(outcome Outcome) { f.outcomes = append(f.outcomes, outcome) }

// ObserveFirewall implements Metrics.
func (f *fixture) ObserveFirewall(attempt firewall.Attempt, action FirewallAction) {
	f.attempts = append(f.attempts, fmt.Sprint(attempt.Vendor, " ", attempt.Way, " ", action))
}

// ObserveSeal implements Metrics.
func (f *fixture) ObserveSeal(result string) { f.verified = append(f.verified, result) }

// discards are Events and Metrics that nothing reads.
type discards struct{}

func (discards) WarnRefused(*corev1.ObjectReference, string)      {}
func (discards) WarnIgnored(*corev1.ObjectReference, string)      {}
func (discards) WarnMistake(*corev1.ObjectReference, string)      {}
func (discards) WarnLeftOut(*corev1.ObjectReference, string)      {}
func (discards) WarnNotSealed(*corev1.ObjectReference, string)    {}
func (discards) ObserveContainer(Outcome)                         {}
func (discards) ObserveFirewall(firewall.Attempt, FirewallAction) {}
func (discards) ObserveSeal(string)                               {}

type runtimeOf struct{ f *fixture }

func (r runtimeOf) Pods(ctx context.Context) (map[string]grants.RuntimeState, error) {
	return r.f.Pods(ctx)
}

// allocation is an annotation that gives containers devices, each for one request.
func allocation(t testing.TB, pod, node string, containers map[string][]types.ResourceName) map[string]string {
	t.Helper()
	info := &types.PodInfo{Name: pod, NodeName: node, RunningContainers: map[string]types.ContainerInfo{}}
	for name, from := range containers {
		container := types.NewContainerInfo()
		for i, resource := range from {
			request := types.ResourceName(fmt.Sprintf("resource/group/gpu/ask%d/cards", i))
			container.DevRequests[request], container.AllocateFrom[request] = 1, resource
		}
		info.RunningContainers[name] = *container
	}
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{deviceinfo.Annotation: value}
}

// create creates a container as the kubelet would, for a pod that lives from then on.
func (f *fixture) create(
	t *testing.T,
	uid, container, source string,
	annotations map[string]string,
) (*runtimeapi.ContainerConfig, error) {
	t.Helper()
	return f.createAs(
		t,
		uid,
		source,
		annotations,
		&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: container}},
	)
}

// createAs is create with the container as the kubelet has it.
func (f *fixture) createAs(
	t *testing.T,
	uid, source string,
	annotations map[string]string,
	config *runtimeapi.ContainerConfig,
) (*runtimeapi.ContainerConfig, error) {
	t.Helper()
	f.live[uid] = true
	raw := createRequest(t, uid, source, annotations, config)
	create := f.CreateContainer
	if f.withImage {
		create = f.createWithImage
	}
	suffix, err := create(context.Background(), raw)
	if err != nil || len(suffix) == 0 {
		return nil, err
	}
	merged, err := inject.Decode(append(raw, suffix...))
	if err != nil {
		t.Fatal(err)
	}
	return merged.Config, nil
}

// createWithImage is CreateContainer of a frontend that sees the image's variables.
func (f *fixture) createWithImage(ctx context.Context, raw []byte) ([]byte, error) {
	request, err := inject.Decode(raw)
	if err != nil {
		return nil, err
	}
	container := containerOf(request)
	container.WithImage, container.SandboxID = true, ""
	addition, err := f.Admit(ctx, container)
	if err != nil || addition == nil {
		return nil, err
	}
	return inject.Suffix(addition)
}

func createRequest(
	t *testing.T,
	uid, source string,
	annotations map[string]string,
	config *runtimeapi.ContainerConfig,
) []byte {
	t.Helper()
	all := map[string]string{"kubernetes.io/config.source": source}
	maps.Copy(all, annotations)
	raw, err := proto.Marshal(&runtimeapi.CreateContainerRequest{
		PodSandboxId: "sandbox",
		Config:       config,
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Uid: uid, Namespace: "default", Name: "pod-" + uid},
			Annotations: all,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

var (
	plain      = podThatRequests()
	requesting = podThatRequests(gpu)
	// before requests what a plugin had before it broke, other for what no plugin ever had.
	before = podThatRequests("example.com/before")
	other  = podThatRequests("example.com/other")
	both   = podThatRequests(gpu, widget)
)

// podThatRequests returns a pod with an init container, a sidecar and two containers, of which main
// requests the resources.
func podThatRequests(resources ...types.ResourceName) pods.Pod {
	return pods.Pod{
		Namespace: "default",
		Containers: []pods.Container{
			{Name: "first", Init: true},
			{Name: "log", Init: true, Always: true},
			{Name: "main"},
			{Name: "side"},
		},
		Requests: map[string][]types.ResourceName{"main": resources},
	}
}

// waitForDevices waits until there are that many extended resources.
func (f *fixture) waitForDevices(t testing.TB, want int) {
	t.Helper()
	for {
		inventory, changed := f.Devices.Inventory()
		if len(inventory.ExtendedResources()) == want {
			return
		}
		<-changed
	}
}
