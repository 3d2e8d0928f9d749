// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package differential tests that what device plugins do has the same outcome with kubecri as with
// the kubelet. One scripted plugin does it at the kubelet of one node and at kubecri of another, at
// the same time and in the same cluster, for each behaviour in testdata. Where the outcomes differ,
// the behaviour has both of them, and the sentence of docs/vendors/device-plugins.md that says why.
package differential

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is the cluster of the package. Its first node has no kubecri.
	shared *cluster.Cluster
	// directory has the files of the test.
	directory string
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(dir string) (cluster.Options, error) {
	options, err := clustertest.HostedOptions("e2e-differential", 2, dir)
	if err != nil {
		return options, err
	}
	directory = dir
	if err := errors.Join(
		buildProgram(dir), clustertest.Build(context.Background(), options.Programs, binaries.DevicePlugins),
	); err != nil {
		return options, err
	}
	options.Nodes[0].Kubecri = nil
	// A kubelet reports devices with its status, every ten seconds by default.
	options.Nodes[0].KubeletArgs = []string{"--node-status-update-frequency=1s"}
	return options, nil
}

func use(c *cluster.Cluster) error {
	shared = c
	for _, n := range c.Nodes {
		if err := furnish(n); err != nil {
			return err
		}
	}
	return nil
}

// major is the number of the device nodes. Linux leaves it to experiments: no driver is behind
// them, so that opening one which is permitted fails with ENXIO.
const major = 120

// cdiKind is the kind of the CDI device that each node has, which is named there.
const cdiKind = `{
  "cdiVersion": "0.6.0", "kind": "diff.example/cdi",
  "devices": [{"name": "there", "containerEdits": {"env": ["DIFF_CDI=there"]}}]
}`

// furnish gives a node the files that plugins name.
func furnish(n *cluster.Node) error {
	err := n.Sandbox().Do(func() error {
		for minor, path := range []string{"/dev/diff0", "/dev/diff1", "/dev/diffs/a", "/dev/diffs/b"} {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, uint32(minor)))); err != nil {
				return err
			}
			if err := os.Chmod(path, 0o666); err != nil {
				return err
			}
		}
		if err := os.MkdirAll("/var/run/cdi", 0o755); err != nil {
			return err
		}
		return errors.Join(
			os.Mkdir("/dev/diffnone", 0o755),
			os.Symlink("diff1", "/dev/difflink"),
			os.WriteFile("/dev/difffile", nil, 0o644),
			os.WriteFile("/var/run/cdi/diff.json", []byte(cdiKind), 0o644),
		)
	})
	if err != nil {
		return fmt.Errorf("furnish %s: %w", n.Name, err)
	}
	for name, content := range map[string]string{"one/file": "one", "two/file": "two"} {
		path := filepath.Join(n.Var(), "lib", "diff", name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
		if err != nil {
			return err
		}
	}
	return nil
}

// timeout is how long the whole table may take on a busy machine.
const timeout = 12 * time.Minute

func tableContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}
