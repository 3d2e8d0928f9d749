// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// timeout is how long a test waits for what should take no time.
const timeout = time.Minute

// node is a node with GPUs whose kubecri publishes them.
type node struct {
	*testing.T
	name    string
	patches atomic.Int64 // that the API server took
	failed  atomic.Int64 // patches

	mu   sync.Mutex
	gpus []gpu.GPU
}

// The node as a device plugin.
func (n *node) New() error      { return nil }
func (n *node) Start() error    { return nil }
func (n *node) GetName() string { return "gpus" }

func (n *node) UpdateNodeInfo(info *types.NodeInfo) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	gpu.Publish(info, gpu.Resource, n.gpus)
	return nil
}

func (n *node) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, errors.New("nothing is created here")
}

// set makes the node have these GPUs.
func (n *node) set(gpus []gpu.GPU) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gpus = gpus
}

// newGPUs returns some GPUs, two to a close group.
func newGPUs(count int) []gpu.GPU {
	gpus := make([]gpu.GPU, count)
	for i := range gpus {
		gpus[i] = gpu.GPU{ID: fmt.Sprintf("GPU-%08x-aaaa-bbbb-cccc-%012x", i*7919, i*104729), Memory: 80 << 30,
			Groups: []int{i / 2, i / 4}}
	}
	return gpus
}

// register creates a node as its kubelet does, until the test ends.
func register(t *testing.T, name string) *kube.Client {
	t.Helper()
	kubelet, err := server.Client("system:node:"+name, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubelet.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return kubelet
}

// publish publishes the GPUs of a registered node until the test ends or stop is called: with
// plugins that are called as often as kubecri calls them, and with the client, which is the
// kubelet's.
func publish(t *testing.T, name string, client kubernetes.Interface, gpus []gpu.GPU) (n *node, stop func()) {
	t.Helper()
	n = &node{T: t, name: name, gpus: gpus}
	load := func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		return []pluginload.Loaded[device.Device]{{Name: "gpus", Plugin: n}}, nil
	}
	files := plugins.NewFiles(name, load, plugins.DefaultTiming(), nil)
	manager := plugins.New(name, files)
	advertiser := advertise.New(name, manager, advertise.Options{Metrics: n})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { files.Run(ctx) })
	running.Go(func() { manager.Run(ctx) })
	running.Go(func() { advertiser.Run(ctx, client) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return n, stop
}

// now returns the node as the API server has it.
func (n *node) now() *corev1.Node {
	n.Helper()
	object, err := server.Admin.CoreV1().Nodes().Get(n.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		n.Fatal(err)
	}
	return object
}

// shows reports whether the API server's node has the GPUs that the node has: one by one, and
// counted.
func (n *node) shows() error {
	object := n.now()
	want := types.NewNodeInfoWithName(n.name)
	if err := n.UpdateNodeInfo(want); err != nil {
		return err
	}
	annotation, err := deviceinfo.EncodeNode(want)
	if err != nil {
		return err
	}
	if object.Annotations[deviceinfo.Annotation] != annotation {
		return errors.New("the annotation is another")
	}
	for _, list := range []corev1.ResourceList{object.Status.Capacity, object.Status.Allocatable} {
		if count := list[corev1.ResourceName(gpu.Resource)]; count.Value() != want.KubeAlloc[gpu.Resource] {
			return fmt.Errorf("there are %v GPUs, want %d", &count, want.KubeAlloc[gpu.Resource])
		}
	}
	return nil
}

// awaitPatches waits until the API server has taken that many patches in all, and no more. The last
// answer may come a moment after the node has changed.
func (n *node) awaitPatches(want int64) {
	n.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for start := time.Now(); n.patches.Load() != want; <-ticker.C {
		if got := n.patches.Load(); got > want || time.Since(start) > timeout {
			n.Fatalf("%d patches, want %d", got, want)
		}
	}
}

// await waits until the API server shows the node's GPUs, and returns how long that took.
func (n *node) await(what string) time.Duration {
	n.Helper()
	return n.until(what, n.shows)
}

// until waits until holds returns no error, and returns how long that took.
func (n *node) until(what string, holds func() error) time.Duration {
	n.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	start := time.Now()
	for err := holds(); err != nil; err = holds() {
		if time.Since(start) > timeout {
			n.Fatalf("%s: not published after %v: %v", what, timeout, err)
		}
		<-ticker.C
	}
	return time.Since(start)
}

// ObservePatch implements advertise.Metrics.
func (n *node) ObservePatch(err error) {
	if err == nil {
		n.patches.Add(1)
	} else {
		n.failed.Add(1)
	}
}

// ShowOmitted implements advertise.Metrics.
func (n *node) ShowOmitted([]string) {}
