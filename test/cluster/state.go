// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/kubedevice/kubedevice/test/sandbox"
)

// state is what another process needs to know of a running cluster.
type state struct {
	Options Options
	// Sandboxes and Components are process ids by name.
	Sandboxes, Components map[string]int
	// SchedulerURL is that of [Cluster.SchedulerURL].
	SchedulerURL string
}

// save writes the state of the cluster, as it is now, for Attach.
func (c *Cluster) save() error {
	s := state{Options: c.options, Sandboxes: map[string]int{controlPlaneSandbox: c.controlPlane.PID()},
		Components: map[string]int{}, SchedulerURL: c.schedulerURL}
	for _, node := range c.Nodes {
		s.Sandboxes[node.Name] = node.sandbox.PID()
	}
	for _, component := range c.Components() {
		if pid := component.PID(); pid != 0 {
			s.Components[component.Name] = pid
		}
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("save the cluster's state: %w", err)
	}
	return write(c.layout.state(), content)
}

// Restart kills (-9) a program, starts it again, and lets other processes that attach know of it.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	component, err := c.Component(name)
	if err != nil {
		return err
	}
	if err := component.Restart(ctx); err != nil {
		return err
	}
	return c.save()
}

// Attach finds the running cluster of a directory, which another process has started.
func Attach(dir string) (*Cluster, error) {
	c, err := attach(layout{dir})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no cluster runs in %s: start one there first", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to the cluster in %s: %w", dir, err)
	}
	return c, nil
}

func attach(files layout) (*Cluster, error) {
	content, err := os.ReadFile(files.state())
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, err
	}
	c, err := describe(s.Options)
	if err != nil {
		return nil, err
	}
	c.schedulerURL = s.SchedulerURL
	alive, err := c.cgroups.Processes()
	if err != nil {
		return nil, err
	}
	// A process id in the file is good only if it is in the cluster's cgroup still: the machine may
	// have given it to another.
	c.controlPlane, err = c.attachSandbox(controlPlaneSandbox, s, alive)
	if err != nil {
		return nil, err
	}
	for _, node := range c.Nodes {
		if node.sandbox, err = c.attachSandbox(node.Name, s, alive); err != nil {
			return nil, err
		}
	}
	for _, component := range c.Components() {
		pid := s.Components[component.Name]
		if !slices.Contains(alive, pid) {
			continue
		}
		if component.process, err = sandbox.AttachProcess(pid); err != nil {
			return nil, err
		}
	}
	return c, c.connect()
}

func (c *Cluster) attachSandbox(name string, s state, alive []int) (*sandbox.Sandbox, error) {
	pid := s.Sandboxes[name]
	if !slices.Contains(alive, pid) {
		return nil, fmt.Errorf("%s is down: take the cluster down and start it again", name)
	}
	return sandbox.Attach(c.sandboxConfig(name), pid)
}
