// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// startTimeout is how long a program may take until it answers.
const startTimeout = 30 * time.Second

// process is a program that serves a socket.
type process struct {
	socket  string
	command *exec.Cmd
	ended   chan struct{}
	stderr  bytes.Buffer
}

// start starts the command and waits until its socket can be connected to.
func start(ctx context.Context, socket string, command *exec.Cmd) (*process, error) {
	p := &process{socket: socket, command: command, ended: make(chan struct{})}
	command.Stderr = &p.stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		// How it ended shows in what it said.
		_ = command.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return p, conn.Close()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-p.ended:
			return nil, fmt.Errorf("%s has ended: %s", filepath.Base(command.Path), p.said())
		case <-ctx.Done():
			p.stop()
			return nil, fmt.Errorf("%s does not answer at %s: %w: %s", filepath.Base(command.Path), socket,
				err, p.said())
		}
	}
}

// said returns the end of what the program has said. It must have ended.
func (p *process) said() string {
	text := p.stderr.Bytes()
	return string(text[max(0, len(text)-2000):])
}

// stop ends the program.
func (p *process) stop() {
	// It may have ended by itself.
	_ = p.command.Process.Kill()
	<-p.ended
}

func (p *process) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), name)
}

// forgetPeak makes peak count from now on.
func (p *process) forgetPeak() error {
	return os.WriteFile(p.proc("clear_refs"), []byte("5"), 0)
}

// peak returns the most memory that the process had, in bytes.
func (p *process) peak() (int64, error) {
	process, err := procfs.NewProc(p.command.Process.Pid)
	if err != nil {
		return 0, err
	}
	status, err := process.NewStatus()
	return int64(status.VmHWM), err
}
