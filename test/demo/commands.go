// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// Command is a command line that shows what has happened on the demo's cluster. It is typed in the
// source tree, after [Setup].
type Command struct {
	Line string
	// Status is the exit status that it ends with.
	Status int
	// Shown says that the demo ends with what it prints.
	Shown bool
}

// Commands are those that the demo names.
func Commands(c *cluster.Cluster) []Command {
	const pods = "test/demo/pods/"
	scheduler := " --scheduler=" + c.SchedulerURL()
	return []Command{
		{Line: "kubectl device nodes"},
		{Line: "kubectl device pods"},
		{Line: "kubectl device top", Shown: true},
		{Line: "kubectl device fit -f " + pods + "pair.yaml" + scheduler, Shown: true},
		{Line: "kubectl device why too-large" + scheduler, Status: 1, Shown: true},
		{Line: "kubectl device lint -f " + pods + "too-large.yaml", Shown: true},
		{Line: "kubectl device web" + scheduler},
	}
}

// Run runs the command until it ends, and returns what it prints. Another exit status than Status
// is an error.
func (command Command) Run(ctx context.Context, c *cluster.Cluster) (printed string, err error) {
	root, err := checkout.Root()
	if err != nil {
		return "", err
	}
	shell := exec.CommandContext(ctx, "bash", "-c", Setup(c)+"\n"+command.Line)
	shell.Dir = root
	output, err := shell.CombinedOutput()
	status := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		return "", fmt.Errorf("run %s: %w", command.Line, err)
	}
	if status != command.Status {
		return "", fmt.Errorf("%s: exit status %d, want %d\n%s", command.Line, status, command.Status, output)
	}
	return string(output), nil
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

// conclude shows what kubectl device prints of all this, and names the commands that do.
func (d *demo) conclude(ctx context.Context, c *cluster.Cluster, keep bool) error {
	ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
	defer cancel()
	commands := Commands(c)
	fmt.Fprintln(d.out, "\nAll of it, as kubectl device shows it:")
	for _, command := range commands {
		if !command.Shown {
			continue
		}
		printed, err := command.Run(ctx, c)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "\n$ %s\n%s", command.Line, printed)
	}
	if keep {
		fmt.Fprintf(d.out, "\nThe cluster is there until \"make demo-down\". To go on:\n  %s\n", Setup(c))
	} else {
		fmt.Fprintln(d.out, "\n\"KEEP=1 make demo\" keeps the cluster until \"make demo-down\". Then go on with:")
	}
	for _, command := range commands {
		fmt.Fprintln(d.out, "  "+command.Line)
	}
	return nil
}
