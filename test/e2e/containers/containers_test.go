// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
)

func TestNoRandomContainerStartsWithWhatItsVendorsRuntimeWouldObey(t *testing.T) {
	for index, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			ctx := begin(t, 2*time.Minute+time.Duration(*created)*3*time.Second)
			n := takeOver(ctx, t, index)
			runtime, kubecri := logOf(t, n.Containerd), logOf(t, n.Kubecri)
			pid := n.Containerd.PID()
			killed := 0
			c := n.attempt(ctx, t, *created, func(done int) {
				if killed**created <= done**times {
					killed++
					n.restart(ctx, t)
				}
			}, func(c container, devices []string) {
				if len(devices) > 0 {
					t.Errorf("a container of image %s starts with %.300q\nits pod sets %.300q",
						c.image.name, devices, c.GetEnvs())
				}
			})
			c.check(t)
			n.expectRegistered(t, logOf(t, n.Kubecri)[len(kubecri):], killed)
			n.expectRuntimeAlive(t, logOf(t, n.Containerd)[len(runtime):], pid)
		})
	}
}

// Without this, the test above could pass because it reads the wrong files, or because there is
// nothing in the containers.
func TestWithoutTheFirewallRandomContainersStartWithWhatTheirVendorsRuntimesWouldObey(t *testing.T) {
	const sample = 80
	for index, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			ctx := begin(t, 4*time.Minute)
			n := takeOver(ctx, t, index)
			n.switchOffFirewall(ctx, t)
			found := map[string]int{
				"NVIDIA_VISIBLE_DEVICES=": 0, "the mount ": 0, "AMD_VISIBLE_DEVICES=": 0, "in the mode oci": 0,
				"ASCEND_VISIBLE_DEVICES=": 0, "more by ": 0, "XILINX_VISIBLE_DEVICES=": 0, "XILINX_VISIBLE_CARDS=": 0,
				"MTHREADS_VISIBLE_DEVICES=": 0, "WIDGET_VISIBLE_DEVICES=": 0, "WIDGET_CARDS_": 0,
			}
			n.attempt(ctx, t, sample, func(int) {}, func(_ container, devices []string) {
				for what := range found {
					if strings.Contains(strings.Join(devices, "\n"), what) {
						found[what]++
					}
				}
			})
			t.Log("what vendors' runtimes would obey, in containers:", found)
			for what, count := range found {
				if count == 0 {
					t.Errorf("no container starts with %q", what)
				}
			}
		})
	}
}

// attempt creates that many random containers, in batches of 1 to *pods pods: half of them by the
// next seed. It calls before for each pod, with the number of containers that were created, and
// inspect for each container that has started, with what vendors' runtimes would obey of it. One of
// four pods holds a device.
func (n *node) attempt(ctx context.Context, t *testing.T, want int, before func(done int),
	inspect func(c container, devices []string)) (c counts) {
	t.Helper()
	g := newGenerator(*seed)
	images := n.giveImages(ctx, t, g)
	for c.created < want {
		if g.seed == *seed && 2*c.created >= want {
			g = newGenerator(*seed + 1)
			images = n.giveImages(ctx, t, g)
		}
		var batch []*sandbox
		for range 1 + g.IntN(*pods) {
			if c.created >= want {
				break
			}
			before(c.created)
			p := g.pod(images)
			if g.chance(4) {
				p = g.withDevice(p)
			}
			batch = append(batch, n.runPod(ctx, t, p, &c, inspect))
		}
		for _, s := range batch {
			s.remove(ctx, t)
		}
	}
	if c.allocated == 0 {
		t.Error("no container was started with a device")
	}
	if c.read < c.started || c.started == 0 {
		t.Errorf("%d containers were started, and the config.json of %d was read", c.started, c.read)
	}
	return c
}

// runPod runs a pod, and counts and inspects its containers.
func (n *node) runPod(ctx context.Context, t *testing.T, p pod, c *counts,
	inspect func(c container, devices []string)) *sandbox {
	t.Helper()
	s, err := n.run(ctx, p)
	if s == nil {
		t.Fatal(err)
	}
	for _, of := range p.containers {
		if err != nil { // the sandbox is refused, and with it all of them
			c.add(t, n, p, of, err)
			continue
		}
		id, err := s.create(ctx, of)
		c.add(t, n, p, of, err)
		if err != nil {
			continue
		}
		config, err := n.config(id)
		if err != nil {
			t.Fatal(err)
		}
		c.read++
		devices := config.obeyed()
		if p.requestsDevice(of) {
			if gpu, _ := config.last("SIMGPU_VISIBLE_DEVICES"); gpu == "" {
				t.Errorf("a container of image %s starts without its device", of.image.name)
			}
			c.allocated++
			devices = append(devices, config.moreThanAllocated()...)
		}
		inspect(of, devices)
	}
	return s
}

// restart kills kubecri, which is registered again.
func (n *node) restart(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := n.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}
	n.awaitRegistered(ctx, t)
}

// expectRegistered fails the test unless the log of kubecri says that it was registered each time
// after it was killed, at least once, and that the runtime has not dropped it.
func (n *node) expectRegistered(t *testing.T, log string, killed int) {
	t.Helper()
	const registered = "Registered with NRI"
	n.expectNotDropped(t, log)
	if times := strings.Count(log, registered); times != killed || times == 0 {
		t.Errorf("kubecri was registered %d times, and killed %d times", times, killed)
	}
}

// expectNotDropped fails the test if the log of kubecri says that the runtime has dropped it.
func (n *node) expectNotDropped(t *testing.T, log string) {
	t.Helper()
	if times := strings.Count(log, "The container runtime has ended the NRI connection"); times > 0 {
		t.Errorf("the runtime has dropped kubecri %d times; see %s", times, n.Kubecri.LogPath)
	}
}

// expectRuntimeAlive fails the test unless containerd is the process that it was, whose log has no
// panic.
func (n *node) expectRuntimeAlive(t *testing.T, log string, pid int) {
	t.Helper()
	if n.Containerd.PID() != pid || strings.Contains(log, "panic") {
		t.Error("containerd has ended, or panicked; see", n.Containerd.LogPath)
	}
}

func logOf(t *testing.T, program *cluster.Component) string {
	t.Helper()
	content, err := os.ReadFile(program.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
