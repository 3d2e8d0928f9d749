// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// trust are attempts of a local user to have a file of its own loaded as a plugin, by root, where a
// node's admin has left the door open.
func trust() []*Attempt {
	var attempts []*Attempt
	for _, door := range []struct {
		id, what string
		// leave opens the door to a directory with a plugin file, and returns the path by which
		// kubecri is given the directory.
		leave func(directory, plugin string) (string, error)
	}{
		{"plugin-file-writable", "leaves a plugin's file writable for everybody",
			func(directory, plugin string) (string, error) { return directory, os.Chmod(plugin, 0o666) }},
		{"plugin-file-owned", "leaves a plugin's file to another user",
			func(directory, plugin string) (string, error) { return directory, os.Chown(plugin, 65534, 65534) }},
		{"plugin-directory-writable", "leaves the plugins' directory writable for a group",
			func(directory, _ string) (string, error) { return directory, os.Chmod(directory, 0o775) }},
		{"plugin-parent-writable", "leaves the directory above it writable for everybody",
			func(directory, _ string) (string, error) { return directory, os.Chmod(filepath.Dir(directory), 0o777) }},
		{"plugin-link", "names the directory by a link that another user made",
			func(directory, _ string) (string, error) {
				link := directory + "-link"
				return link, errors.Join(os.Symlink(directory, link), os.Lchown(link, 65534, 65534))
			}},
	} {
		load := func(args ...string) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				directory := filepath.Join(s.run.dir, s.attempt.ID, "plugins")
				plugin := filepath.Join(directory, "simgpu.so")
				content, err := os.ReadFile(filepath.Join(s.run.plugins, "simgpu.so"))
				if err != nil {
					return Got{}, err
				}
				if err := errors.Join(os.MkdirAll(directory, 0o755), os.WriteFile(plugin, content, 0o644)); err != nil {
					return Got{}, err
				}
				named, err := door.leave(directory, plugin)
				if err != nil {
					return Got{}, err
				}
				return s.load(ctx, append(args, "--cridevices="+named)...)
			}
		}
		attempts = append(attempts, &Attempt{
			ID: door.id, Who: NodeAdmin, What: door.what, Defence: Trust, Try: load(),
			Want: everywhere(RefusedByNode, "can be changed by users other than root"),
			Off: Off{How: "kubecri runs with --" + pluginload.AllowWritableFlag, Try: load("--" +
				pluginload.AllowWritableFlag)},
		})
	}
	return attempts
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
