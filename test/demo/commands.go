// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"path/filepath"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// Commands show what has happened on the demo's cluster, as they are typed after [Setup].
func Commands(c *cluster.Cluster) []string {
	return []string{
		"kubectl device nodes",
		"kubectl device pods",
		"kubectl device why too-large --scheduler=" + c.SchedulerURL(),
	}
}

// Setup is the command that makes a shell use the demo's cluster, with kubectl and its plugin.
func Setup(c *cluster.Cluster) string {
	return fmt.Sprintf("export KUBECONFIG=%s PATH=%s:%s:$PATH", c.Kubeconfig(), c.Programs(),
		filepath.Dir(filepath.Dir(c.Programs())))
}

// Attach returns the cluster of a demo that has kept it.
func Attach() (*cluster.Cluster, error) {
	options, err := options()
	if err != nil {
		return nil, err
	}
	return cluster.Attach(options.Dir)
}

// conclude names the commands that show what has happened.
func (d *demo) conclude(c *cluster.Cluster, keep bool) {
	if keep {
		fmt.Fprintf(d.out, "\nThe cluster is there until \"make demo-down\". See what has happened:\n  %s\n", Setup(c))
	} else {
		fmt.Fprintln(d.out, "\nWith KEEP=1, \"make demo\" keeps the cluster, and these show what has happened:")
	}
	for _, command := range Commands(c) {
		fmt.Fprintln(d.out, "  "+command)
	}
}
