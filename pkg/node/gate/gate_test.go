// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
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

// cards is a device plugin with three cards, of which the last is sick.
type cards struct{ err error }

func (c *cards) New() error      { return nil }
func (c *cards) Start() error    { return nil }
func (c *cards) GetName() string { return "cards" }

func (c *cards) UpdateNodeInfo(info *types.NodeInfo) error {
	for i, name := range []types.ResourceName{card0, card1, sick} {
		info.Capacity[name] = 1
		if i < 2 {
			info.Allocatable[name] = 1
		}
	}
	info.Capacity[kind], info.Allocatable[kind], info.Scorer[kind] = 1, 1, 2
	info.KubeCap[gpu], info.KubeAlloc[gpu] = 3, 2
	return nil
}

func (c *cards) Allocate(_ *types.PodInfo, container *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	var devices []string
	for _, name := range container.AllocateFrom {
		devices = append(devices, "/dev/gpu"+strings.Split(string(name), "/")[3])
	}
	return nil, devices, nil, c.err
}

// widgets is a second device plugin, with one widget.
type widgets struct{ cards }

func (w *widgets) GetName() string { return "widgets" }

func (w *widgets) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Capacity[widget0], info.Allocatable[widget0] = 1, 1
	info.KubeCap[widget], info.KubeAlloc[widget] = 1, 1
	return nil
}

func (w *widgets) Allocate(_ *types.PodInfo, _ *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, []string{"/dev/widget0"}, nil, nil
}

// knownPods is what the API server said of pods.
type knownPods map[string]pods.Pod

func (k knownPods) Get(uid string) (pods.Pod, bool) { pod, ok := k[uid]; return pod, ok }

func (k knownPods) Lookup(_ context.Context, uid string) (pods.Pod, error) {
	if pod, ok := k[uid]; ok {
		pod.Name = "pod-" + uid
		return pod, nil
	}
	return pods.Pod{}, fmt.Errorf("pod with UID %q: %w", uid, pods.ErrUnknown)
}

func (k knownPods) DeviceResources() (map[string]bool, bool) {
	return map[string]bool{"example.com/before": true}, true
}

// untold is knownPods on a node without a past: what else might be a device is not known.
type untold struct{ knownPods }

func (u untold) DeviceResources() (map[string]bool, bool) { return map[string]bool{}, false }

// devNodes is a file system where everything is a device node.
type devNodes struct{}

func (devNodes) Lstat(string) (fs.FileInfo, error) { return devNode{}, nil }

func (devNodes) Readlink(string) (string, error) { return "", fs.ErrInvalid }

type devNode struct{ fs.FileInfo }

func (devNode) Mode() fs.FileMode { return fs.ModeDevice | fs.ModeCharDevice }

// bench is a gate with everything around it.
type bench struct {
	*Gate
	pods     knownPods
	live     map[string]bool
	told     []string
	outcomes []Outcome
	plugin   *cards
}

// Pods is the runtime as the grants see it.
func (b *bench) Pods(context.Context) (map[string]grants.Seen, error) {
	seen := map[string]grants.Seen{}
	for uid := range b.live {
		seen[uid] = grants.Seen{Live: true}
	}
	return seen, nil
}

// newBench has cards and widgets, or nothing but a plugin file that could not be loaded.
func newBench(t *testing.T, loaded bool) *bench {
	t.Helper()
	plugin := &cards{}
	b := newBenchOf(t, func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		if !loaded {
			return nil, []error{errors.New("every plugin is broken")}
		}
		return []pluginload.Loaded[device.Device]{{Name: "cards", Plugin: plugin}, {Name: "widgets", Plugin: &widgets{}}}, nil
	})
	b.plugin = plugin
	return b
}

// benchWith has the plugins, and is ready when each has told its devices.
func benchWith(t *testing.T, loaded ...device.Device) *bench {
	t.Helper()
	b := newBenchOf(t, func(context.Context) (all []pluginload.Loaded[device.Device], _ []error) {
		for _, plugin := range loaded {
			all = append(all, pluginload.Loaded[device.Device]{Name: plugin.GetName(), Plugin: plugin})
		}
		return all, nil
	})
	<-b.Devices.Settled()
	b.waitForDevices(t, len(loaded))
	return b
}

func newBenchOf(t *testing.T, load plugins.Load) *bench {
	t.Helper()
	b := &bench{pods: knownPods{}, live: map[string]bool{}}
	timing := plugins.DefaultTiming()
	host := plugins.New("node-1", load, timing, func(string, string, time.Duration, error) {})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		host.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	record := grants.New(filepath.Join(t.TempDir(), "grants"), runtimeOf{b}, func(uid string) bool { return b.live[uid] })
	t.Cleanup(func() { record.Close() })
	b.Gate = &Gate{
		NodeName: "node-1", Pods: b.pods, Devices: host, Grants: record, Host: devNodes{}, CDI: func() error { return nil },
		Tell:    func(_ *corev1.ObjectReference, message string) { b.told = append(b.told, message) },
		Observe: func(outcome Outcome) { b.outcomes = append(b.outcomes, outcome) },
	}
	return b
}

type runtimeOf struct{ b *bench }

func (r runtimeOf) Pods(ctx context.Context) (map[string]grants.Seen, error) { return r.b.Pods(ctx) }

// allocation is an annotation that gives containers devices, each for one request.
func allocation(t *testing.T, pod, node string, containers map[string][]types.ResourceName) map[string]string {
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

// create asks the gate for a container as the kubelet would, for a pod that lives from then on.
func (b *bench) create(t *testing.T, uid, container, source string, annotations map[string]string) (*runtimeapi.ContainerConfig, error) {
	t.Helper()
	return b.createAs(t, uid, source, annotations, &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: container}})
}

// createAs is create with the container as the kubelet has it.
func (b *bench) createAs(t *testing.T, uid, source string, annotations map[string]string, config *runtimeapi.ContainerConfig) (*runtimeapi.ContainerConfig, error) {
	t.Helper()
	b.live[uid] = true
	raw := createRequest(t, uid, source, annotations, config)
	suffix, err := b.CreateContainer(context.Background(), raw)
	if err != nil || len(suffix) == 0 {
		return nil, err
	}
	merged, err := inject.Decode(append(raw, suffix...))
	if err != nil {
		t.Fatal(err)
	}
	return merged.Config, nil
}

func createRequest(t *testing.T, uid, source string, annotations map[string]string, config *runtimeapi.ContainerConfig) []byte {
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
	plain  = podThatAsks()
	asking = podThatAsks(gpu)
	// before asks for what a plugin had before it broke, other for what no plugin ever had.
	before = podThatAsks("example.com/before")
	other  = podThatAsks("example.com/other")
	both   = podThatAsks(gpu, widget)
)

// podThatAsks returns a pod with an init container, a sidecar and two containers, of which main asks for the resources.
func podThatAsks(resources ...string) pods.Pod {
	return pods.Pod{
		Namespace:  "default",
		Containers: []pods.Container{{Name: "first", Init: true}, {Name: "log", Init: true, Always: true}, {Name: "main"}, {Name: "side"}},
		Asks:       map[string][]string{"main": resources},
	}
}

func TestWhoPassesAndWhoIsRefused(t *testing.T) {
	forHere := func(from ...types.ResourceName) func(*testing.T) map[string]string {
		return func(t *testing.T) map[string]string {
			return allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": from})
		}
	}
	text := func(value string) func(*testing.T) map[string]string {
		return func(*testing.T) map[string]string { return map[string]string{deviceinfo.Annotation: value} }
	}
	for name, test := range map[string]struct {
		source      string
		known       *pods.Pod
		container   string
		annotations func(*testing.T) map[string]string
		broken      bool // every plugin is
		want        Outcome
		code        codes.Code
		says        string
	}{
		"a pod that asks for nothing passes":                     {known: &plain, want: Passed},
		"and does so when every plugin is broken":                {known: &plain, broken: true, want: Passed},
		"so does one that asks for somebody else's resource":     {known: &other, want: Passed},
		"also when all plugins are broken":                       {known: &other, broken: true, want: Passed},
		"a static pod passes":                                    {source: "file", want: Passed},
		"a static pod passes without the devices that it claims": {source: "file", annotations: forHere(card0), want: Passed},
		"a pod that nobody knows yet is asked to come again":     {want: Refused, code: codes.Unavailable, says: "not known"},
		"a pod with an allocation gets its devices":              {known: &asking, annotations: forHere(card0), want: Injected},
		"so does one that asks in the annotation alone":          {known: &plain, annotations: forHere(card0, card1), want: Injected},
		"a pod that asks and has no annotation is refused":       {known: &asking, want: Refused, code: codes.FailedPrecondition, says: "no allocation"},
		"also when the plugin behind the resource is broken":     {known: &before, broken: true, want: Refused, code: codes.FailedPrecondition, says: "no allocation"},
		"a pod that asks in the annotation and was bound by another scheduler is refused": {known: &plain, annotations: text(`{"runningcontainer":{"main":{"requests":{"resource/group/gpu/a/cards":1}}}}`),
			want: Refused, code: codes.FailedPrecondition, says: "no allocation"},
		"an allocation for another node is refused": {known: &asking, annotations: func(t *testing.T) map[string]string {
			return allocation(t, "pod-u", "node-2", map[string][]types.ResourceName{"main": {card0}})
		}, want: Refused, code: codes.FailedPrecondition, says: "node-2"},
		"an allocation for another pod is refused": {known: &asking, annotations: func(t *testing.T) map[string]string {
			return allocation(t, "pod-v", "node-1", map[string][]types.ResourceName{"main": {card0}})
		}, want: Refused, code: codes.FailedPrecondition, says: "pod-v"},
		"an annotation that cannot be read is refused": {known: &plain, annotations: text("{"), want: Refused, code: codes.FailedPrecondition, says: deviceinfo.Annotation},
		"an annotation that asks for nothing passes":   {known: &plain, annotations: text(`{"runningcontainer":{"main":{"scorer":{"x":1}}}}`), want: Passed},
		"a device that is not here is refused":         {known: &asking, annotations: forHere("resource/group/gpu/9/cards"), want: Refused, code: codes.FailedPrecondition, says: `gpu/9/cards is not on node "node-1"`},
		"a device that is sick is refused":             {known: &asking, annotations: forHere(sick), want: Refused, code: codes.FailedPrecondition, says: "unhealthy"},
		"a device whose plugin is broken is refused":   {known: &asking, annotations: forHere(card0), broken: true, want: Refused, code: codes.FailedPrecondition, says: "is not on node"},
		"one card twice in a pod is refused":           {known: &asking, annotations: forHere(card0, card0), want: Refused, code: codes.FailedPrecondition, says: "the node has 1"},
		"a container that asks and was given nothing is refused": {known: &asking, annotations: func(t *testing.T) map[string]string {
			return allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"side": {card0}})
		}, want: Refused, code: codes.FailedPrecondition, says: "gives it no device"},
		"a container that asks for two kinds of devices gets both":                  {known: &both, annotations: forHere(card0, widget0), want: Injected},
		"a container that asks for two kinds and was given the first is refused":    {known: &both, annotations: forHere(card0, card1), want: Refused, code: codes.FailedPrecondition, says: "asks for example.com/widget"},
		"a container that asks for two kinds and was given the second is refused":   {known: &both, annotations: forHere(widget0), want: Refused, code: codes.FailedPrecondition, says: "asks for example.com/gpu"},
		"no container of a pod starts when another one's allocation lacks a device": {known: &both, container: "side", annotations: forHere(card0), want: Refused, code: codes.FailedPrecondition, says: `container "main" asks for example.com/widget`},
		"a container of a device pod that asks for nothing passes":                  {known: &asking, container: "side", annotations: forHere(card0), want: Passed},
		"a device without a quantity, which nobody would count, is refused": {known: &plain, annotations: text(`{"podname":"pod-u","nodename":"node-1","runningcontainer":{"main":{"allocatefrom":{"resource/group/gpu/a/cards":"resource/group/gpu/0/cards"}}}}`),
			want: Refused, code: codes.FailedPrecondition, says: "no quantity"},
		"a request that was not met is refused": {known: &plain, annotations: text(`{"podname":"pod-u","nodename":"node-1","runningcontainer":{"main":{"devrequests":{"resource/group/gpu/a/cards":1}}}}`),
			want: Refused, code: codes.FailedPrecondition, says: "allocated nothing"},
		"a device for a container that the pod does not have is refused": {known: &asking, annotations: func(t *testing.T) map[string]string {
			return allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}, "ghost": {card1}})
		}, want: Refused, code: codes.FailedPrecondition, says: `runningcontainer["ghost"]: the pod has no such container`},
		"a device for an init container among those that run along is refused": {known: &asking, annotations: func(t *testing.T) map[string]string {
			return allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}, "first": {card1}})
		}, want: Refused, code: codes.FailedPrecondition, says: "write it under initcontainer"},
		"a sidecar's device is among those of the containers that run along": {known: &asking, annotations: func(t *testing.T) map[string]string {
			return allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}, "log": {card1}})
		}, want: Injected},
		"a bound pod whose annotation is malformed is refused and told where": {known: &asking, annotations: text(`{"podname":"pod-u","nodename":"node-1","runningcontainer":{"main":{"devrequests":{"resource/group/gpu/a/cards":-1}}}}`),
			want: Refused, code: codes.FailedPrecondition, says: `runningcontainer["main"].devrequests["resource/group/gpu/a/cards"]`},
		"a plain count instead of a device is refused": {known: &asking, annotations: forHere(gpu), want: Refused, code: codes.FailedPrecondition, says: "no device resource"},
		"a user's request that the scheduler made nothing of is refused": {known: &plain, annotations: text(`{"podname":"pod-u","nodename":"node-1","runningcontainer":{"main":{"requests":{"resource/group/gpu/a/cards":1}}}}`),
			want: Refused, code: codes.FailedPrecondition, says: "allocated nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, !test.broken)
			<-b.Devices.Settled()
			want := 2
			if test.broken {
				want = 0
			}
			b.waitForDevices(t, want)
			if test.known != nil {
				b.pods["u"] = *test.known
			}
			source, container := test.source, test.container
			if source == "" {
				source = "api"
			}
			if container == "" {
				container = "main"
			}
			var annotations map[string]string
			if test.annotations != nil {
				annotations = test.annotations(t)
			}
			config, err := b.create(t, "u", container, source, annotations)
			if diff := cmp.Diff([]Outcome{test.want}, b.outcomes); diff != "" {
				t.Fatalf("outcome (-want +got):\n%s\n%v", diff, err)
			}
			if got := status.Code(err); got != test.code {
				t.Errorf("code %v, want %v: %v", got, test.code, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
			if tell := test.code == codes.FailedPrecondition; (len(b.told) == 1) != tell || tell && !strings.Contains(b.told[0], test.says) {
				t.Errorf("the pod was told %q", b.told)
			}
			if (config != nil) != (test.want == Injected) {
				t.Errorf("config %v", config)
			}
		})
	}
}

func TestOnANodeWithoutAPastOnlyPodsThatMightNeedDevicesWaitForIt(t *testing.T) {
	for name, test := range map[string]struct {
		pod     pods.Pod
		plugins bool
		want    codes.Code
	}{
		"a pod that asks for nothing, without a plugin":                {pod: plain, want: codes.OK},
		"a pod that asks for some extended resource, without a plugin": {pod: other, want: codes.Unavailable},
		"the same when every plugin has spoken":                        {pod: other, plugins: true, want: codes.OK},
		"a pod without an allocation when every plugin has spoken":     {pod: asking, plugins: true, want: codes.FailedPrecondition},
	} {
		b := newBench(t, test.plugins)
		b.pods["u"] = test.pod
		b.Gate.Pods = untold{b.pods}
		_, err := b.create(t, "u", "main", "api", nil)
		if status.Code(err) != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if test.want == codes.Unavailable && len(b.told) > 0 {
			t.Errorf("%s: its owner was told %q, though it need not be a device pod", name, b.told)
		}
	}
}

// waitForDevices waits until there are that many extended resources.
func (b *bench) waitForDevices(t *testing.T, want int) {
	t.Helper()
	for {
		inventory, changed := b.Devices.Inventory()
		if len(inventory.ExtendedResources()) == want {
			return
		}
		<-changed
	}
}

func TestAContainerGetsWhatThePluginSaysAndCarriesItsPodsDecision(t *testing.T) {
	b := newBench(t, true)
	b.pods["u"] = pods.Pod{Namespace: "default", Containers: []pods.Container{{Name: "main"}}, Asks: asking.Asks}
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card1}})
	got, err := b.create(t, "u", "main", "api", annotations)
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/gpu1", HostPath: "/dev/gpu1", Permissions: "mrw"}},
		Annotations: map[string]string{grants.Annotation: annotations[deviceinfo.Annotation]},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARestartedContainerGetsTheSameDevicesWhateverTheAnnotationHasBecome(t *testing.T) {
	b := newBench(t, true)
	b.pods["u"] = asking
	if _, err := b.create(t, "u", "main", "api", allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})); err != nil {
		t.Fatal(err)
	}
	delete(b.pods, "u") // the API server may be away, too
	for name, annotations := range map[string]map[string]string{
		"changed": allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card1}}),
		"removed": nil,
		"broken":  {deviceinfo.Annotation: "{"},
	} {
		config, err := b.create(t, "u", "main", "api", annotations)
		if err != nil || len(config.GetDevices()) != 1 || config.Devices[0].HostPath != "/dev/gpu0" {
			t.Errorf("%s: %v, %v", name, config, err)
		}
	}
}

func TestASecondPodGetsTheDeviceOnlyWhenTheFirstIsGone(t *testing.T) {
	b := newBench(t, true)
	b.pods["a"], b.pods["b"] = asking, asking
	same := map[string][]types.ResourceName{"main": {card0}}
	if _, err := b.create(t, "a", "main", "api", allocation(t, "pod-a", "node-1", same)); err != nil {
		t.Fatal(err)
	}
	_, err := b.create(t, "b", "main", "api", allocation(t, "pod-b", "node-1", same))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "default/pod-a") {
		t.Errorf("while the first lives: %v", err)
	}
	delete(b.live, "a")
	if _, err := b.create(t, "b", "main", "api", allocation(t, "pod-b", "node-1", same)); err != nil {
		t.Errorf("when the first is gone: %v", err)
	}
}

// forgetful is a record that finds a pod gone right after it said that it has it.
type forgetful struct{ Grants }

func (forgetful) Has(string) bool { return true }

func TestAPodThatLeavesTheRecordIsLookedUp(t *testing.T) {
	b := newBench(t, true)
	b.Gate.Grants = forgetful{b.Gate.Grants}
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	if _, err := b.create(t, "u", "main", "api", annotations); status.Code(err) != codes.Unavailable {
		t.Errorf("nobody knows the pod: %v, want Unavailable", err)
	}
	b.pods["u"] = asking
	if _, err := b.create(t, "u", "main", "api", annotations); err != nil {
		t.Errorf("the API server has told of it: %v", err)
	}
}

func TestAMaskIsHeldByAnyNumberOfPods(t *testing.T) {
	b := newBench(t, true)
	for _, uid := range []string{"a", "b"} {
		b.pods[uid] = asking
		if _, err := b.create(t, uid, "main", "api", allocation(t, "pod-"+uid, "node-1", map[string][]types.ResourceName{"main": {kind}})); err != nil {
			t.Errorf("pod %s: %v", uid, err)
		}
	}
}

func TestAPluginThatFailsIsTriedAgain(t *testing.T) {
	b := newBench(t, true)
	b.pods["u"] = asking
	b.plugin.err = errors.New("driver is loading")
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	if _, err := b.create(t, "u", "main", "api", annotations); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "driver is loading") {
		t.Errorf("got %v", err)
	}
	b.plugin.err = nil
	if _, err := b.create(t, "u", "main", "api", annotations); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestARequestThatCannotBeReadIsRefused(t *testing.T) {
	b := newBench(t, true)
	for _, edit := range []func(context.Context, []byte) ([]byte, error){b.CreateContainer, b.RestorePod} {
		if _, err := edit(context.Background(), []byte{0xff}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
	}
}
