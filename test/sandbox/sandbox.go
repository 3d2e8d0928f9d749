// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandbox gives a group of processes namespaces of their own (mounts, network, processes,
// host name, IPC), so that a whole Kubernetes node, kubelet and container runtime included, can run
// on a machine several times and leave it as it was.
//
// A sandbox lives as long as its first process, a small program (cmd/sandboxinit) that calls
// [Main]: it builds the sandbox's root filesystem, says that it is ready, and from then on only
// reaps orphans. When it dies, for any reason, the kernel kills every process of the sandbox, and
// mounts, network links and device nodes go with them. That one kill is the whole clean-up.
//
// Inside, a sandbox has of its own: /var (a directory of the machine), /run and /dev (in memory),
// /proc, and the sysctls a kubelet writes. Everything else is the machine's, at the same paths, so
// programs and files need no copying; except for /tmp, /sys and Config.Visible, it can only be
// read.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/kubedevice/kubedevice/test/cgroup"
	"golang.org/x/sys/unix"
)

// Config describes a sandbox to be opened.
type Config struct {
	// Name is the sandbox's host name.
	Name string
	// Dir is a directory for the sandbox's files. They outlive the sandbox: opening it again is
	// like rebooting a machine.
	Dir string
	// Init is the program that calls Main.
	Init string
	// Log is a file that takes what the first process says.
	Log string
	// Visible are directories that are seen inside at their own paths wherever they lie, and can be
	// written to.
	Visible []string
	// Cgroup is the sandbox's own: every process in it when the sandbox is closed is killed.
	Cgroup *cgroup.Tree
	// Doors are ways from the machine into the sandbox.
	Doors []Door
}

// Door is a listener whose connections are forwarded to an address inside a sandbox. The sandbox
// gets a listener of its own: the caller closes this one when it likes.
type Door struct {
	Listener *net.TCPListener
	To       string
}

func (c Config) doorsTo() (addresses []string) {
	for _, door := range c.Doors {
		addresses = append(addresses, door.To)
	}
	return addresses
}

// daemons is where in a sandbox's cgroup its processes live. The sandbox's cgroup itself stays
// empty: on cgroups of version 2, only such a cgroup can have others (the pods') below it.
const daemons = "daemons"

// Sandbox is a running sandbox. Its methods may be called from several goroutines.
type Sandbox struct {
	config     Config
	pid        int
	namespaces []namespace
}

// Open makes a sandbox. It returns when the sandbox's filesystem is complete; the network has
// nothing but an idle loopback device.
func Open(ctx context.Context, config Config) (*Sandbox, error) {
	sandbox, err := open(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open sandbox %s: %w", config.Name, err)
	}
	return sandbox, nil
}

func open(ctx context.Context, config Config) (*Sandbox, error) {
	s := spec{
		Hostname: config.Name,
		Root:     filepath.Join(config.Dir, "root"),
		Var:      config.varDir(),
		Visible:  config.Visible,
		DoorsTo:  config.doorsTo(),
	}
	for _, directory := range []string{s.Root, s.Var} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return nil, err
		}
	}
	if err := config.Cgroup.Make(daemons); err != nil {
		return nil, err
	}
	process, err := begin(config)
	if err != nil {
		return nil, err
	}
	defer process.close()
	// Up to here the first process has only waited for its orders, and would have ended with us.
	// Now that it can be found by its cgroup, it may begin.
	sandbox := &Sandbox{config: config, pid: process.command.Process.Pid}
	err = config.Cgroup.Add(daemons, sandbox.pid)
	if err == nil {
		err = process.instruct(ctx, s)
	}
	if err == nil {
		sandbox.namespaces, err = openNamespaces(sandbox.pid)
	}
	if err != nil {
		return nil, errors.Join(err, process.command.Process.Kill(), process.command.Wait())
	}
	go process.command.Wait() //nolint:errcheck // reaps it; what it had to say is in its log
	return sandbox, nil
}

// Attach finds a sandbox that another process opened, by the id of its first process.
func Attach(config Config, pid int) (*Sandbox, error) {
	namespaces, err := openNamespaces(pid)
	if err != nil {
		return nil, fmt.Errorf("attach to sandbox %s: %w", config.Name, err)
	}
	return &Sandbox{config: config, pid: pid, namespaces: namespaces}, nil
}

// PID is the id of the sandbox's first process, as the machine numbers it.
func (r *Sandbox) PID() int { return r.pid }

// Var is the directory of the machine that is /var in the sandbox.
func (r *Sandbox) Var() string { return r.config.varDir() }

func (c Config) varDir() string { return filepath.Join(c.Dir, "var") }

// Name is the sandbox's name.
func (r *Sandbox) Name() string { return r.config.Name }

// Close kills (-9) everything in the sandbox, as a power cut would, and returns when the last
// process is gone.
func (r *Sandbox) Close(ctx context.Context) error {
	for _, namespace := range r.namespaces {
		namespace.file.Close() //nolint:errcheck // opened for reading
	}
	return r.config.Cgroup.Remove(ctx)
}

// first is the sandbox's first process while it is being started.
type first struct {
	command *exec.Cmd
	orders  io.WriteCloser
	answer  io.ReadCloser
}

func begin(config Config) (*first, error) {
	log, err := openLog(config.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own
	answer, answerWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer answerWriter.Close() //nolint:errcheck // the child has its own
	command := &exec.Cmd{
		Path:       config.Init,
		Args:       []string{config.Init},
		Dir:        "/",
		Stdout:     log,
		Stderr:     log,
		ExtraFiles: []*os.File{answerWriter},
		SysProcAttr: &syscall.SysProcAttr{
			Setsid: true,
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS |
				unix.CLONE_NEWIPC,
		},
	}
	for _, door := range config.Doors {
		listener, err := door.Listener.File()
		if err != nil {
			return nil, err
		}
		defer listener.Close() //nolint:errcheck // the child has its own
		command.ExtraFiles = append(command.ExtraFiles, listener)
	}
	orders, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &first{command: command, orders: orders, answer: answer}, nil
}

// instruct sends the first process its orders and waits until it has obeyed.
func (f *first) instruct(ctx context.Context, s spec) error {
	if err := json.NewEncoder(f.orders).Encode(s); err != nil {
		return err
	}
	if err := f.orders.Close(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { f.answer.Close() })
	defer stop()
	answer, err := io.ReadAll(f.answer)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case string(answer) != ready:
		return fmt.Errorf("its first process answered %q: its log may tell more", answer)
	}
	return nil
}

func (f *first) close() {
	f.orders.Close()
	f.answer.Close()
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}
