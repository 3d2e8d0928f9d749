// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"path/filepath"
	"text/template"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/image"
)

// Runtime is a container runtime that a node can run.
type Runtime string

// The runtimes.
const (
	Containerd24 Runtime = "containerd-2.4"
	Containerd17         = Runtime(binaries.Containerd17)
	// Containerd23 can checkpoint containers, and restores them from images.
	Containerd23 = Runtime(binaries.Containerd23)
)

// runtimes say what is different between them: which parts of the build make them, the directory of
// their programs in that of the cluster's, whether they have CRIU and restore containers from
// images, and their configuration.
var runtimes = map[Runtime]struct {
	extras    []binaries.Extra
	directory string
	restores  bool
	config    *template.Template
}{
	Containerd24: {directory: ".", config: containerd2Config},
	Containerd17: {
		extras: []binaries.Extra{binaries.Containerd17}, directory: string(Containerd17), config: containerd17Config,
	},
	Containerd23: {
		extras:    []binaries.Extra{binaries.Containerd23, binaries.CRIU},
		directory: string(Containerd23), restores: true, config: containerd2Config,
	},
}

// containerdSocket is containerd's address inside a node.
const containerdSocket = "/run/containerd/containerd.sock"

// programs is the directory of the container runtime's programs.
func (n *Node) programs() string {
	return filepath.Join(n.cluster.options.Programs, runtimes[n.options.runtime()].directory)
}

func (n *Node) containerd() Program {
	path := n.programs() + ":" // for the shim, which comes with it
	if runtimes[n.options.runtime()].restores {
		path += filepath.Join(n.cluster.options.Programs, string(binaries.CRIU)) + ":"
	}
	return Program{
		Path: filepath.Join(n.programs(), "containerd"),
		Args: []string{"--config=" + n.ContainerdConfig()},
		Env:  []string{"PATH=" + path + n.cluster.path()},
	}
}

// ContainerdConfig is the configuration file of the container runtime, which it reads when it
// starts.
func (n *Node) ContainerdConfig() string { return n.file("containerd.toml") }

// containerdFiles returns the configuration files of the container runtime by their names.
func (n *Node) containerdFiles() (map[string][]byte, error) {
	registries := ""
	files := map[string][]byte{}
	if n.options.Registry != "" {
		registries = n.file("registries")
		// As server, too: otherwise what it lacks would be looked for in the registry that the
		// image's name says.
		files["registries/_default/hosts.toml"] = fmt.Appendf(nil,
			"server = %[1]q\n\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", n.options.Registry)
	}
	config, err := render(runtimes[n.options.runtime()].config, map[string]any{
		"Socket":     containerdSocket,
		"Metrics":    containerdMetrics,
		"Pause":      image.Pause,
		"Plugins":    filepath.Join(n.cluster.options.Programs, "cni"),
		"Networks":   n.file("cni"),
		"Runc":       filepath.Join(n.cluster.options.Programs, "runc"),
		"Registries": registries,
		"Restores":   runtimes[n.options.runtime()].restores,

		"PodAnnotation": n.options.PodAnnotation,
	})
	files["containerd.toml"] = config
	return files, err
}
