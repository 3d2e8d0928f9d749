// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/test/image"
)

// latency begins the names of containerd's metrics of how long its NRI plugins took.
const latency = "containerd_nri_plugin_latency_seconds"

// The runtime waits for a plugin with all pods of the node, and drops it after two seconds. One of
// four pods holds a part of a GPU, which kubecri writes to disk before it answers.
func TestTheRuntimeWaitsForKubecriForLessThanASecondWhileAllCPUsAreBusy(t *testing.T) {
	const creators, deviceEach = 8, 4
	ctx := begin(t, 5*time.Minute)
	n := takeOver(ctx, t, 0)
	occupy(t)
	g := newGenerator(*seed)
	images := n.giveImages(ctx, t, g)
	sandboxes := make([]*sandbox, *pods)
	var mu sync.Mutex
	var c counts    // mu guards it
	var granted int // pods that got their device; mu guards it
	var creating errgroup.Group
	creating.SetLimit(creators)
	for i := range sandboxes {
		p := pod{annotations: map[string]string{}}
		if i%deviceEach == 0 {
			p.requests = `"gpu/a/memory":"16Gi"` // 5 pods share a GPU
			p.containers = append(p.containers, idleContainer("main"))
		} else {
			p.containers = append(p.containers, g.container("main", images[i%len(images)]))
		}
		creating.Go(func() (err error) {
			if sandboxes[i], err = n.run(ctx, p); err != nil {
				return err
			}
			id, err := sandboxes[i].create(ctx, p.containers[0])
			mu.Lock()
			defer mu.Unlock()
			c.add(t, n, p, p.containers[0], err)
			if p.requests == "" || err != nil {
				return nil
			}
			config, err := n.config(id)
			if gpu, _ := config.last("SIMGPU_VISIBLE_DEVICES"); gpu != "" {
				granted++
			}
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
	c.check(t)
	t.Logf("%d of %d pods hold a part of a GPU", granted, *pods)
	if want := (*pods + deviceEach - 1) / deviceEach; granted != want {
		t.Errorf("%d pods hold a part of a GPU, want %d", granted, want)
	}
	n.restart(ctx, t) // with all of them in the list
	n.expectFast(ctx, t)
	for _, s := range sandboxes {
		s.remove(ctx, t)
	}
	n.expectFast(ctx, t)
}

// idleContainer returns a container that idles, and has nothing that kubecri would refuse.
func idleContainer(name string) container {
	return container{ContainerConfig: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image.Busybox},
		Command: idle, LogPath: name + ".log", Linux: &runtimeapi.LinuxContainerConfig{},
	}}
}

// occupy keeps all CPUs busy until the test ends.
func occupy(t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		busy := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = busy.Process.Kill()
			_ = busy.Wait()
		})
	}
}

// expectFast fails the test if the runtime has waited for one of kubecri's answers for more than a
// second, by the runtime's own metrics.
func (n *node) expectFast(ctx context.Context, t *testing.T) {
	t.Helper()
	metrics, err := n.RuntimeMetrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	within, all := map[string]string{}, map[string]string{}
	for line := range strings.Lines(metrics) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.HasPrefix(name, latency+"_bucket") && strings.Contains(name, `le="1"`):
			within[operation(name)] = value
		case strings.HasPrefix(name, latency+"_count"):
			all[operation(name)] = value
		}
	}
	if all["CreateContainer"] == "" || all["Synchronize"] == "" {
		t.Fatalf("containerd has no metrics of %q", all)
	}
	for operation, count := range all {
		if within[operation] != count {
			t.Errorf("%s: %s of %s calls took at most a second", operation, within[operation], count)
		}
	}
	t.Log("calls within a second:", fmt.Sprint(within))
}

// operation returns the label of a metric.
func operation(metric string) string {
	_, after, _ := strings.Cut(metric, `operation="`)
	name, _, _ := strings.Cut(after, `"`)
	return name
}
