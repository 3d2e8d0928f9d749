// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// Options say what cluster to start. All paths are absolute.
type Options struct {
	// Dir is the cluster's directory: kubeconfig, logs, certificates, the nodes' files. It is the
	// cluster's identity too: clusters with different directories don't meet.
	Dir string
	// Programs is the directory with what package binaries built.
	Programs string
	// Kubernetes is the version of API server, controller manager and kubelets. Empty stands for
	// Kubernetes137.
	Kubernetes Kubernetes
	// Scheduler is the program that schedules. It gets what every kube-scheduler needs (kubeconfig
	// and so on), then its own arguments. An empty path stands for Kubernetes' own scheduler.
	Scheduler Program
	// Nodes are the nodes, which are named node-1, node-2 and so on.
	Nodes []NodeOptions
	// Kubelets are names of further nodes whose kubelets have credentials. Nothing runs there.
	Kubelets []string
	// Seals says what scheduler and kubecri do about seals, for which the cluster gets keys of its
	// own. Empty means nothing, as does seal.Off. Kubernetes' own scheduler makes no seals.
	Seals seal.Mode
	// Manifests are files and directories that are applied, in this order, as soon as the API
	// server answers.
	Manifests []string
	// Visible are further directories that the cluster's programs may write to, and see wherever
	// they lie. Without that, the machine's directories can only be read, /tmp excepted, and those
	// below /var, /run and /dev are hidden.
	Visible []string
	// ExtraArgs are more arguments for etcd, kube-apiserver or kube-controller-manager, by that
	// name.
	ExtraArgs map[string][]string
}

// NodeOptions say what one node runs.
type NodeOptions struct {
	// Kubecri is the CRI proxy between kubelet and container runtime. It gets the kubelet's
	// arguments and --cri-upstream, then its own. Nil leaves the proxy out: the kubelet talks to
	// the runtime itself.
	Kubecri *Program
	// Mode says how kubecri hears of containers. Empty stands for ModeCRI.
	Mode Mode
	// Inventory is the file that describes the node's simulated GPUs to the device plugin, by way
	// of kubecri's environment variable KUBEDEVICE_SIMGPU_CONFIG. Without it, the variable isn't
	// set.
	Inventory string
	// KubeletArgs are more arguments for the kubelet, and so for kubecri.
	KubeletArgs []string
	// Runtime is the container runtime. Empty stands for Containerd24.
	Runtime Runtime
	// PodAnnotation is the key of an annotation that containerd 2 passes from pods to containers.
	// Empty stands for none.
	PodAnnotation string
	// Registry is the URL of a registry, as the node reaches it, that the runtime uses in place of
	// every other, also of the one in an image's name. Empty leaves each registry its own; none can
	// be reached.
	Registry string
}

// Extras are what has to be built for the cluster besides that which every cluster runs.
func (o Options) Extras() []binaries.Extra {
	var extras []binaries.Extra
	if extra := versions[o.kubernetes()]; extra != "" {
		extras = append(extras, extra)
	}
	for _, node := range o.Nodes {
		extras = append(extras, runtimes[node.runtime()].extras...)
	}
	return extras
}

func (n NodeOptions) runtime() Runtime { return cmp.Or(n.Runtime, Containerd24) }

// nri reports whether the node has a kubecri that is an NRI plugin.
func (n NodeOptions) nri() bool { return n.Kubecri != nil && n.Mode == ModeNRI }

// Mode is how a node's kubecri hears of containers.
type Mode string

// The modes.
const (
	ModeCRI Mode = "cri" // as a proxy, which the kubelet calls
	ModeNRI Mode = "nri" // as an NRI plugin of the runtime, which the kubelet calls itself
)

// Program is an executable with what is its own: arguments, environment variables (NAME=value), and
// directories or files that it alone sees at other paths, such as a simulated /sys.
type Program struct {
	Path   string
	Args   []string
	Env    []string
	Mounts []sandbox.Mount
	// HideRDMA hides RDMA from the program, see [sandbox.HideRDMA].
	HideRDMA bool
}

// InventoryVariable names a node's inventory file for the simulated GPUs' device plugin.
const InventoryVariable = "KUBEDEVICE_SIMGPU_CONFIG"

// Default returns the options of a cluster with this many nodes that runs KubeDevice as it was
// built in this checkout: scheduler and CRI proxy from _output, the plugins of _output/plugins that
// need no hardware, roles and policies of deploy, enforced seals, and 8 simulated GPUs on each
// node, in pairs. Its directory is _output/cluster.
func Default(nodes int) (Options, error) {
	root, err := checkout.Root()
	if err != nil {
		return Options{}, err
	}
	output := filepath.Join(root, "_output")
	options := Options{
		Dir:      filepath.Join(output, "cluster"),
		Programs: filepath.Join(output, "cluster", "bin"),
		Scheduler: Program{
			Path: filepath.Join(output, "kube-scheduler"),
			Args: []string{"--devschedpath=" + filepath.Join(output, "plugins", "scheduler")},
		},
		Manifests: []string{filepath.Join(root, "deploy", "rbac"), filepath.Join(root, "deploy", "policies")},
		Visible:   []string{root},
		Seals:     seal.Enforce,
	}
	for range nodes {
		options.Nodes = append(options.Nodes, NodeOptions{
			Kubecri: &Program{
				Path: filepath.Join(output, "kubecri"),
				Args: []string{"--cridevices=" + filepath.Join(output, "plugins", "simulated")},
			},
			Inventory: filepath.Join(root, "test", "inventories", "pairs.yaml"),
		})
	}
	return options, nil
}

// maxNodes is how many nodes the cluster's network has addresses for.
const maxNodes = 200

func (o Options) check() error {
	if len(o.Nodes) > maxNodes {
		return fmt.Errorf("%d nodes: at most %d are possible", len(o.Nodes), maxNodes)
	}
	if !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.Programs) {
		return fmt.Errorf("the directories %q and %q must be absolute paths", o.Dir, o.Programs)
	}
	if _, err := os.Stat(filepath.Join(o.Programs, "sandboxinit")); err != nil {
		return fmt.Errorf("the cluster's programs are not built: %w", err)
	}
	if _, ok := versions[o.kubernetes()]; !ok {
		return fmt.Errorf("there is no Kubernetes %q: they are %q", o.Kubernetes, slices.Sorted(maps.Keys(versions)))
	}
	needed := map[string]string{"scheduler": o.Scheduler.Path, "kubelet": o.KubernetesProgram("kubelet")}
	for i, node := range o.Nodes {
		if _, ok := runtimes[node.runtime()]; !ok {
			return fmt.Errorf("%s: there is no runtime %q: they are %q", nodeName(i), node.Runtime,
				slices.Sorted(maps.Keys(runtimes)))
		}
		if node.Mode != "" && node.Mode != ModeCRI && node.Mode != ModeNRI {
			return fmt.Errorf("%s: there is no mode %q: they are %q and %q", nodeName(i), node.Mode, ModeCRI, ModeNRI)
		}
		needed["container runtime of "+nodeName(i)] = filepath.Join(o.Programs, runtimes[node.runtime()].directory,
			"containerd")
		needed["inventory of "+nodeName(i)] = node.Inventory
		if node.Kubecri != nil {
			needed["kubecri of "+nodeName(i)] = node.Kubecri.Path
		}
	}
	for _, what := range slices.Sorted(maps.Keys(needed)) {
		path := needed[what]
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s: %q is not an absolute path", what, path)
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s: %w: build it first (make build), or name another", what, err)
		}
	}
	return nil
}
