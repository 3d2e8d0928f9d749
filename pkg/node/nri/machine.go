// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is the machine of a container runtime: its processes and its programs.
type Machine struct {
	// Root stands before every path. It is empty for the machine itself.
	Root string
	// Processes are what runs on it.
	Processes Processes
}

// Processes are the processes of a machine.
type Processes interface {
	// Peer returns the id of the process that serves a socket, or 0 if this one cannot see it.
	Peer(ctx context.Context, socket string) (pid int, err error)
	// Run runs a program and returns its output. The error has what the program wrote to stderr.
	Run(ctx context.Context, program string, args ...string) (output string, err error)
}

// NewMachine returns this machine.
func NewMachine() Machine { return Machine{Processes: processes{}} }

// processes are the processes of this machine.
type processes struct{}

func (m Machine) proc(pid int, name string) string {
	return filepath.Join("/", m.Root, "proc", fmt.Sprint(pid), name)
}

// program returns the file of the process's program. Who must not see it has to take the process's
// word for it.
func (m Machine) program(pid int, said string) (string, error) {
	program, err := os.Readlink(m.proc(pid, "exe"))
	switch {
	case err == nil && strings.HasSuffix(program, " (deleted)"):
		return "", fmt.Errorf("%s was replaced after the container runtime was started: restart the runtime", said)
	case err == nil:
		return program, nil
	case filepath.IsAbs(said):
		return said, nil
	}
	return "", fmt.Errorf("where the program %s of the container runtime lies: %w", said, err)
}

// clockSlack is how much later than its process's start a file may seem to have changed before it:
// the kernel's clocks are not finer.
const clockSlack = 2 * time.Second

// checkUnchanged returns an error if one of the files was changed after the process was started, or
// one that matches a pattern came or went.
func (m Machine) checkUnchanged(pid int, patterns []string) error {
	started, err := m.startOf(pid)
	if err != nil {
		return fmt.Errorf("when the container runtime was started: %w", err)
	}
	var files []string
	for _, pattern := range patterns {
		matching, err := filepath.Glob(filepath.Join("/", m.Root, pattern))
		if err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
		files = append(files, matching...)
		if strings.ContainsAny(pattern, "*?[") {
			files = append(files, filepath.Dir(filepath.Join("/", m.Root, pattern)))
		}
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.ModTime().After(started.Add(clockSlack)) {
			return fmt.Errorf("%s was changed after the container runtime was started: restart the runtime",
				strings.TrimPrefix(file, strings.TrimSuffix(m.Root, "/")))
		}
	}
	return nil
}

// startOf returns when the process was started.
func (m Machine) startOf(pid int) (time.Time, error) {
	own, err := os.ReadFile(m.proc(pid, "stat"))
	if err != nil {
		return time.Time{}, err
	}
	all, err := os.ReadFile(filepath.Join("/", m.Root, "proc", "stat"))
	if err != nil {
		return time.Time{}, err
	}
	// The name of the program, in brackets, may have anything in it. What follows it begins with
	// the third field; the start is the 22nd, in hundredths of a second since the boot.
	text := string(own)
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	_, after, _ := strings.Cut(string(all), "\nbtime ")
	var boot, ticks int64
	if _, err := fmt.Sscan(after, &boot); err != nil || len(fields) < 20 {
		return time.Time{}, errors.New("it is not in /proc")
	}
	if _, err := fmt.Sscan(fields[19], &ticks); err != nil {
		return time.Time{}, err
	}
	return time.Unix(boot, 0).Add(time.Duration(ticks) * (time.Second / 100)), nil
}

// Peer returns the process that listens at the socket, or 0 if this one cannot see it.
func (processes) Peer(ctx context.Context, socket string) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var listener *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		listener, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return int(listener.Pid), nil
}

// Run runs a program. What it prints may be long, but not without end.
func (processes) Run(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.WaitDelay = time.Second
	output, err := command.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(failed.Stderr)))
	}
	return string(output), err
}
