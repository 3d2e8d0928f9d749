// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// host is one of the two that serve plugins: the kubelet of one node, or kubecri of the other.
type host struct {
	name string
	node *cluster.Node
	// agent lists the devices of the host, and kubelet those of the node's kubelet.
	agent, kubelet podresourcesapi.PodResourcesListerClient
	namespace      string
	// directory is the one of /var/lib that has the directories of plugins.
	directory string
}

// newHost returns the host whose directories are in a directory of /var/lib.
func newHost(t *testing.T, name string, node *cluster.Node, directory, podResources, namespace string) *host {
	t.Helper()
	return &host{
		name: name, node: node, namespace: namespace, directory: directory,
		agent:   clustertest.NewAgent(t, node, podResources),
		kubelet: clustertest.NewAgent(t, node, clustertest.KubeletPodResources),
	}
}

// plugins returns the directory in which plugins register, as the machine sees it.
func (h *host) plugins(directory string) string {
	return filepath.Join(h.node.Var(), "lib", directory, "device-plugins")
}

// side is one behaviour at one host. It belongs to one goroutine.
type side struct {
	*host
	ctx       context.Context
	row       string // short, for names of resources, sockets and pods
	resource  types.ResourceName
	processes map[string]*process // the plugins that run
	pods      int
	running   *corev1.Pod // by the command idle
	begun     *corev1.Pod // by the command begin
}

func newSide(ctx context.Context, h *host, row string) *side {
	return &side{
		host: h, ctx: ctx, row: row, resource: types.ResourceName("diff.example/" + row),
		processes: map[string]*process{},
	}
}

// atKubelet is the name of the plugin that registers with the kubelet on both nodes.
const atKubelet = "plugin-at-kubelet"

// plugin returns the plugin of a name, which is started if need be.
func (s *side) plugin(name string) (*process, error) {
	if p := s.processes[name]; p != nil {
		return p, nil
	}
	directory := s.directory
	if name == atKubelet {
		directory = "kubelet"
	}
	p, err := startProcess(s.ctx, s.plugins(directory), s.row, string(s.resource))
	if err == nil {
		s.processes[name] = p
	}
	return p, err
}

// end ends the plugins.
func (s *side) end() {
	for _, p := range s.processes {
		p.end()
	}
}

// play plays a behaviour at the host, and returns what is not as it is written, or nothing.
func (h *host) play(ctx context.Context, b behaviour) (problem string) {
	s := newSide(ctx, h, b.row)
	defer s.end()
	for _, step := range b.steps {
		if step.only != "" && step.only != h.name {
			continue
		}
		said, err := s.do(step.command)
		if err == nil && step.checked && said != step.want {
			err = fmt.Errorf("%q, want %q", said, step.want)
		}
		if err != nil {
			return fmt.Sprintf("line %d, %q: %v", step.line, step.command, err)
		}
	}
	return ""
}
