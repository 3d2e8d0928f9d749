// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/kubedevice/kubedevice/test/sandbox"
)

// Component is one program of the cluster, which can be killed and started again with the same
// arguments. Its methods may be called from several goroutines.
type Component struct {
	// Name is unique in the cluster: sandbox/program, for example node-1/kubelet.
	Name string
	// LogPath is the file that takes its output, over all its lives.
	LogPath string

	sandbox func() *sandbox.Sandbox
	command sandbox.Command

	mu      sync.Mutex
	process *sandbox.Process // nil before the first start, and after an end that was requested
}

// Start starts the program. It does not wait until the program is of use.
func (c *Component) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running() {
		return fmt.Errorf("start %s: it runs already, as process %d", c.Name, c.process.PID())
	}
	if err := os.MkdirAll(filepath.Dir(c.LogPath), 0o755); err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	log, err := os.OpenFile(c.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer log.Close() //nolint:errcheck // the program has its own
	command := c.command
	command.Stdout, command.Stderr = log, log
	process, err := c.sandbox().Start(command)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	c.process = process
	return nil
}

// Kill9 kills the program without warning and waits until it is gone. Its children live on.
func (c *Component) Kill9(ctx context.Context) error { return c.end(ctx, syscall.SIGKILL) }

// Terminate sends the program SIGTERM and waits until it has.
func (c *Component) Terminate(ctx context.Context) error { return c.end(ctx, syscall.SIGTERM) }

// Restart kills the program without warning and starts it again.
func (c *Component) Restart(ctx context.Context) error {
	if err := c.Kill9(ctx); err != nil {
		return err
	}
	return c.Start()
}

func (c *Component) end(ctx context.Context, signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running() {
		return nil
	}
	if err := c.process.Signal(signal); err != nil {
		return fmt.Errorf("end %s: %w", c.Name, err)
	}
	select {
	case <-c.process.Done():
		c.process = nil // so it isn't taken for one that has died
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end %s: process %d outlives %v: %w", c.Name, c.process.PID(), signal, context.Cause(ctx))
	}
}

// PID is the running program's process id, as the machine numbers it, or 0.
func (c *Component) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running() {
		return 0
	}
	return c.process.PID()
}

// Signal sends the program a signal. One that doesn't run is no error.
func (c *Component) Signal(signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running() {
		return nil
	}
	return c.process.Signal(signal)
}

func (c *Component) running() bool {
	if c.process == nil {
		return false
	}
	select {
	case <-c.process.Done():
		return false
	default:
		return true
	}
}

// died returns an error, with the end of its log, when the program has ended without
// a request.
func (c *Component) died() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil || c.running() {
		return nil
	}
	return fmt.Errorf("%s ended (%v); the end of %s:\n%s", c.Name, c.process.Err(), c.LogPath, tail(c.LogPath, 15))
}

// tail returns the last lines of a file, as far as it can be read.
func tail(path string, lines int) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	end := bytes.TrimRight(content, "\n")
	for start := len(end); ; lines-- {
		start = bytes.LastIndexByte(end[:start], '\n')
		if start < 0 || lines == 1 {
			return end[start+1:]
		}
	}
}
