// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolments

import (
	"context"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// The plugin, and kubecri's directory for such.
const (
	pluginName       = "nvidia-device-plugin"
	kubecriDirectory = "/var/lib/kubedevice/device-plugins"
)

// pollInterval is the time between two polls.
const pollInterval = 200 * time.Millisecond

// plugin is NVIDIA's device plugin on a node, as two DaemonSets keep it: where the node has the
// label of those that are enrolled, it registers with kubecri, elsewhere with the kubelet.
type plugin struct {
	node    *Node
	machine *vendors.Machine
	runs    *cluster.Component // in one of the directories, or nil
	in      string
}

// newPlugin furnishes the node with GPUs. dir is a directory for what describes them.
func newPlugin(ctx context.Context, node *Node, dir string) (*plugin, error) {
	library, err := nvmltest.BuildIn(ctx, dir, vendors.NVML())
	if err != nil {
		return nil, err
	}
	machine, err := vendors.NewMachine(dir, library.Path)
	if err != nil {
		return nil, err
	}
	return &plugin{node: node, machine: machine},
		node.Sandbox().Do(func() error { return machine.MakeNodes("/dev") })
}

// keep keeps the plugin running where it belongs, until ctx is done.
func (p *plugin) keep(ctx context.Context) {
	for ctx.Err() == nil {
		p.place(ctx)
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
		}
	}
}

func (p *plugin) place(ctx context.Context) {
	node, err := p.node.API(ctx)
	if err != nil {
		return // it is tried again
	}
	directory := vendors.KubeletDirectory
	if node.Labels[enrolment.Label] == "true" {
		directory = kubecriDirectory
	}
	if p.in != directory && p.runs != nil {
		if err := p.runs.Terminate(ctx); err != nil {
			return
		}
		p.runs = nil
	}
	if p.in = directory; p.runs == nil {
		program := p.machine.Plugin(pluginName)
		p.runs = p.node.NewComponent(pluginName+"-"+map[string]string{
			vendors.KubeletDirectory: "kubelet", kubecriDirectory: "kubecri",
		}[directory], cluster.Program{
			Path: program.Path(p.node.options.Programs), Args: program.Args, Env: program.Env,
			Mounts: []sandbox.Mount{
				{Source: p.machine.Sys(), Target: "/sys"}, {Source: directory, Target: vendors.KubeletDirectory},
			},
		})
	}
	if p.runs.PID() == 0 {
		p.runs.Start() //nolint:errcheck // the directory may not be there yet; it is tried again
	}
}
