// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// vendorsPlugin is a behaviour of a vendor's plugin, as its maker publishes it: what it offers of a
// resource, and what a pod with some of that has.
type vendorsPlugin struct {
	program  string
	resource types.ResourceName
	count    int64
	// command prints what a pod has, and want is that.
	command, want string
}

// sample is the name of Kubernetes' own example, whose Allocate leaves these files on the machine.
const sample = "sample-device-plugin"

var sampleFiles = []string{"/tmp/Dev-1", "/tmp/Dev-2"}

// vendorsPlugins are what is played with vendors' plugins.
func vendorsPlugins() []vendorsPlugin {
	const rdmaNodes = "find /dev/infiniband -type c | sort"
	second := "/dev/infiniband/issm1; /dev/infiniband/rdma_cm; /dev/infiniband/umad1; /dev/infiniband/uverbs1"
	both := "/dev/infiniband/issm0; /dev/infiniband/issm1; /dev/infiniband/rdma_cm; /dev/infiniband/umad0; " +
		"/dev/infiniband/umad1; /dev/infiniband/uverbs0; /dev/infiniband/uverbs1"
	const nvidiaNodes = `ls /dev | grep -c 'nvidia[0-9]'; echo $NVIDIA_VISIBLE_DEVICES | tr , '\n' | grep -c GPU-`
	return []vendorsPlugin{
		{vendors.RDMA, "rdma/hca_shared_devices_a", 1, rdmaNodes, both},
		{vendors.RDMA, "rdma/hca_shared_devices_a", 3, rdmaNodes, both},
		{vendors.RDMA, "rdma/hca_shared_devices_b", 2, rdmaNodes, second},
		{vendors.NVIDIA, "nvidia.com/gpu", 1, nvidiaNodes, "1; 1"},
		{vendors.NVIDIA, "nvidia.com/gpu", 3, nvidiaNodes, "3; 3"},
		{"gpu_plugin", "gpu.intel.com/i915", 2, "ls /dev/dri | grep -c '[0-9]'", "4"},
		{sample, "example.com/resource", 1, "ls /tmp | grep -c Dev-", "1"},
		{sample, "example.com/resource", 2, "ls /tmp | grep Dev-", "Dev-1; Dev-2"},
	}
}

func TestVendorsPluginsRunWithKubecriAsWithTheKubelet(t *testing.T) {
	ctx := tableContext(t)
	t.Cleanup(func() {
		for _, path := range sampleFiles {
			os.Remove(path)
		}
	})
	namespace := clustertest.Namespace(t, shared.Client)
	for _, h := range []*host{
		newHost(t, kubelet, shared.Nodes[0], "kubelet", clustertest.KubeletPodResources, namespace),
		newHost(t, kubecri, shared.Nodes[1], "kubedevice", clustertest.KubecriPodResources, namespace),
	} {
		started := startVendors(ctx, t, h)
		for i, p := range vendorsPlugins() {
			s := newSide(ctx, h, strings.ReplaceAll(p.program, "_", "-"))
			s.resource, s.pods = p.resource, i
			offers := started.offers(p)
			if got := s.offered(offers...); got != strings.Join(offers, " ") {
				t.Errorf("with the %s, %q of %s are offered, want %q", h.name, got, p.resource, offers)
			}
			if got, err := s.run(s.pod(p.command, s.some(p.count)), waiting{}); err != nil || got != p.want {
				t.Errorf("with the %s, a pod with %d of %s has %q, %v, want %q", h.name, p.count, p.resource, got, err,
					p.want)
			}
		}

		s := newSide(ctx, h, "away")
		s.resource = "rdma/hca_shared_devices_b"
		if err := started.plugins[vendors.RDMA].Kill9(ctx); err != nil {
			t.Fatal(err)
		}
		if got := s.offered(); got != "" {
			t.Errorf("with the %s, %q of %s are offered without its plugin", h.name, got, s.resource)
		}
		if err := started.plugins[vendors.RDMA].Start(); err != nil {
			t.Fatal(err)
		}
		if got := s.offered("0", "1"); got != "0 1" {
			t.Errorf("with the %s, %q of %s are offered when its plugin is back", h.name, got, s.resource)
		}
	}
}

// startedVendors are plugins that run on a node.
type startedVendors struct {
	machine *vendors.Machine
	plugins map[string]*cluster.Component
}

// offers are the devices of a plugin's resource, each with its NUMA nodes behind @.
func (v startedVendors) offers(p vendorsPlugin) []string {
	var all []string
	for _, d := range v.machine.Plugin(p.program).Resources()[p.resource] {
		all = append(all, idWithNUMA(d.ID, d.NUMA))
	}
	return all
}

// startVendors gives the host's node simulated hardware, and starts the plugins of the table until
// the test ends.
func startVendors(ctx context.Context, t *testing.T, h *host) startedVendors {
	t.Helper()
	dir := filepath.Join(directory, h.name)
	library, err := nvmltest.BuildIn(ctx, directory, vendors.NVML())
	if err != nil {
		t.Fatal(err)
	}
	machine, err := vendors.NewMachine(dir, library.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.node.Sandbox().Do(func() error { return machine.MakeNodes("/dev") }); err != nil {
		t.Fatal(err)
	}
	started := startedVendors{machine, map[string]*cluster.Component{}}
	for _, p := range vendorsPlugins() {
		if started.plugins[p.program] != nil {
			continue
		}
		plugin := machine.Plugin(p.program)
		mount := sandbox.Mount{Source: "/var/lib/" + h.directory + "/device-plugins", Target: vendors.KubeletDirectory}
		if plugin.Registry {
			mount = sandbox.Mount{
				Source: "/var/lib/" + h.directory + "/plugins_registry", Target: vendors.KubeletRegistry,
			}
		}
		c := h.node.NewComponent(p.program, cluster.Program{
			Path: plugin.Path(shared.Programs()), Args: plugin.Args, Env: plugin.Env, HideRDMA: plugin.HideRDMA,
			Mounts: []sandbox.Mount{{Source: machine.Sys(), Target: "/sys"}, mount},
		})
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Terminate(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
		started.plugins[p.program] = c
	}
	return started
}
