// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
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
func (b *bench) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	seen := map[string]grants.RuntimeState{}
	for uid := range b.live {
		seen[uid] = grants.RuntimeState{Live: true}
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
	<-b.Devices.Synced()
	b.waitForDevices(t, len(loaded))
	return b
}

// newBenchOf has what load loads, and the hosted plugins if there are any.
func newBenchOf(t *testing.T, load plugins.Load, served ...devicemanager.Plugins) *bench {
	t.Helper()
	return newBenchAt(t, filepath.Join(t.TempDir(), "grants"), "", load, served...)
}

// newBenchAt is newBenchOf in a boot of the machine that may find a record.
func newBenchAt(t *testing.T, path, boot string, load plugins.Load, served ...devicemanager.Plugins) *bench {
	t.Helper()
	b := &bench{pods: knownPods{}, live: map[string]bool{}}
	files := plugins.NewFiles("node-1", load, plugins.DefaultTiming(), func(string, string, time.Duration, error) {})
	transports := []plugins.Transport{files}
	record := grants.New(path, boot, runtimeOf{b}, func(uid string) bool { return b.live[uid] })
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
	b.Gate = &Gate{
		NodeName: "node-1", Pods: b.pods, Devices: manager, Grants: record, Responses: record.Responses(), Host: devNodes{}, CDI: func() error { return nil },
		Tell:    func(_ *corev1.ObjectReference, message string) { b.told = append(b.told, message) },
		Observe: func(outcome Outcome) { b.outcomes = append(b.outcomes, outcome) },
	}
	return b
}

type runtimeOf struct{ b *bench }

func (r runtimeOf) Pods(ctx context.Context) (map[string]grants.RuntimeState, error) {
	return r.b.Pods(ctx)
}

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
