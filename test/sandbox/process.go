// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a program to be run in a sandbox.
type Command struct {
	// Path is the program's absolute path, Args its arguments without its name.
	Path string
	Args []string
	// Env is the program's whole environment, NAME=value.
	Env []string
	// Mounts are made for this program and its children alone.
	Mounts []Mount
	// HideRDMA hides RDMA from the program, see [HideRDMA].
	HideRDMA bool
	// Stdin, Stdout and Stderr are as those of os/exec.Cmd. A program that is to outlive this
	// process needs files.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Mount shows a directory or file at a second path. The target must exist.
type Mount struct{ Source, Target string }

// Run runs a program in the sandbox and waits for its end. When ctx ends first, it is killed.
func (r *Sandbox) Run(ctx context.Context, command Command) error {
	started, err := r.start(exec.CommandContext(ctx, command.Path, command.Args...), command)
	if err != nil {
		return err
	}
	if err := started.Wait(); err != nil {
		return fmt.Errorf("run %s in sandbox %s: %w", command.Path, r.config.Name, errors.Join(err, ctx.Err()))
	}
	return nil
}

// Start starts a program in the sandbox. It lives until it ends by itself, is killed, or the
// sandbox is closed.
func (r *Sandbox) Start(command Command) (*Process, error) {
	started, err := r.start(exec.Command(command.Path, command.Args...), command)
	if err != nil {
		return nil, err
	}
	process := &Process{handle: started.Process, done: make(chan struct{})}
	go func() {
		defer close(process.done)
		process.err = started.Wait()
	}()
	return process, nil
}

func (r *Sandbox) start(started *exec.Cmd, command Command) (*exec.Cmd, error) {
	started.Dir = "/"
	started.Env = command.Env
	started.Stdin, started.Stdout, started.Stderr = command.Stdin, command.Stdout, command.Stderr
	started.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := r.Do(func() error {
		if err := mountPrivately(command.Mounts); err != nil {
			return err
		}
		if command.HideRDMA {
			if err := HideRDMA(); err != nil {
				return err
			}
		}
		return started.Start()
	})
	if err == nil {
		err = r.config.Cgroup.Add(daemons, started.Process.Pid)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s in sandbox %s: %w", command.Path, r.config.Name, err)
	}
	return started, nil
}

// WithMounts runs f on a thread that is in no sandbox and has mounts of its own, as do the programs
// that f starts. f must not start goroutines and expect them to have these mounts as well. The
// thread is given up afterwards.
func WithMounts(mounts []Mount, f func() error) error {
	result := make(chan error, 1)
	onSpareThread(func() {
		err := unix.Unshare(unix.CLONE_FS) // a thread that shares its root and working directory may not change mounts
		if err == nil {
			err = mountPrivately(mounts)
		}
		if err == nil {
			err = f()
		}
		result <- err
	})
	return <-result
}

// mountPrivately makes mounts that only the calling thread and its children see.
func mountPrivately(mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	for _, m := range mounts {
		if err := mount(m.Source, m.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return nil
}

// Process is a program that runs in a sandbox. Its methods may be called from several goroutines.
type Process struct {
	handle *os.Process
	done   chan struct{}
	err    error // valid once done is closed
}

// AttachProcess finds a running program by its id, as the machine numbers it.
func AttachProcess(pid int) (*Process, error) {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("attach to process %d: %w", pid, err)
	}
	process := &Process{handle: handle, done: make(chan struct{})}
	go func() {
		defer close(process.done)
		defer unix.Close(fd)
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return process, nil
}

// PID is the process's id, as the machine numbers it.
func (p *Process) PID() int { return p.handle.Pid }

// Signal sends a signal. A process that has ended is no error.
func (p *Process) Signal(signal syscall.Signal) error {
	err := p.handle.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended: nil for an exit status of zero, or while it runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}
