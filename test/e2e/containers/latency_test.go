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
)

// latency begins the names of containerd's metrics of how long its NRI plugins took.
const latency = "containerd_nri_plugin_latency_seconds"

// The runtime waits for a plugin with all pods of the node, and drops it after two seconds.
func TestTheRuntimeWaitsForKubecriForLessThanASecondWhileAllCPUsAreBusy(t *testing.T) {
	const creators = 8
	ctx := begin(t, 5*time.Minute)
	n := takeOver(ctx, t, 0)
	occupy(t)
	g := newGenerator(*seed)
	images := n.giveImages(ctx, t, g)
	sandboxes := make([]*sandbox, *pods)
	var mu sync.Mutex
	var c counts // mu guards it
	var creating errgroup.Group
	creating.SetLimit(creators)
	for i := range sandboxes {
		p := pod{annotations: map[string]string{}}
		p.containers = append(p.containers, g.container("main", images[i%len(images)]))
		creating.Go(func() (err error) {
			if sandboxes[i], err = n.run(ctx, p); err != nil {
				return err
			}
			_, err = sandboxes[i].create(ctx, p.containers[0])
			mu.Lock()
			defer mu.Unlock()
			c.add(t, n, p, p.containers[0], err)
			return nil
		})
	}
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
	c.check(t)
	n.restart(ctx, t) // with all of them in the list
	n.expectFast(ctx, t)
	for _, s := range sandboxes {
		s.remove(ctx, t)
	}
	n.expectFast(ctx, t)
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
