// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// loadPlugin puts a plugin's file into the directory plugins of a directory of the attempt's,
// leaves a door open there by a shell command, and starts a kubecri that loads the plugins of a
// directory there. It succeeds if kubecri loads the plugin.
func loadPlugin(ctx context.Context, p *trial, arguments struct {
	Leave     string `json:"leave"`
	Directory string `json:"directory"`
	Argument  string `json:"argument"`
}) (Got, error) {
	dir := filepath.Join(p.run.dir, p.attempt.ID)
	plugin := filepath.Join(dir, "plugins", "simgpu.so")
	content, err := os.ReadFile(filepath.Join(p.run.plugins, "simgpu.so"))
	if err != nil {
		return Got{}, err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(plugin), 0o755), os.WriteFile(plugin, content, 0o644)); err != nil {
		return Got{}, err
	}
	leave := exec.CommandContext(ctx, "/bin/sh", "-c", arguments.Leave)
	leave.Dir = dir
	if said, err := leave.CombinedOutput(); err != nil {
		return Got{}, fmt.Errorf("%s: %w\n%s", arguments.Leave, err, said)
	}
	args := []string{"--cridevices=" + filepath.Join(dir, arguments.Directory)}
	if arguments.Argument != "" {
		args = append(args, arguments.Argument)
	}
	return p.load(ctx, args...)
}

// load starts one more kubecri on the node forged, which neither the kubelet nor the runtime knows,
// and returns what it does with its plugin file.
func (s *Stage) load(ctx context.Context, args ...string) (got Got, err error) {
	run := "/run/" + s.attempt.ID
	kubecri := s.node(forged).NewComponent("kubecri-"+s.attempt.ID, cluster.Program{
		Path: s.run.kubecri,
		Args: append(args, "--container-runtime-endpoint=unix://"+run+"/kubecri.sock", "--state-dir="+run+"/state",
			"--cri-upstream=unix:///run/containerd/containerd.sock", "--nri-socket=", "--metrics-bind-address="),
		Env: []string{cluster.InventoryVariable + "=" + filepath.Join(s.run.dir, "node-1.yaml")},
	})
	if err := kubecri.Start(); err != nil {
		return Got{}, err
	}
	err = await.Until(ctx, "kubecri to load or leave out the plugin", func(context.Context) (bool, error) {
		log, err := os.ReadFile(kubecri.LogPath)
		for line := range strings.Lines(string(log)) {
			switch {
			case strings.Contains(line, "A plugin is left out"):
				got = Got{RefusedByNode, line}
			case strings.Contains(line, "Loaded a plugin"):
				got = Got{Succeeds, line}
			}
		}
		return got.Outcome != "", err
	})
	return got, errors.Join(err, kubecri.Kill9(context.WithoutCancel(ctx)))
}
