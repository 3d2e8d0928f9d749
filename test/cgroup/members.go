// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Add moves a process into a cgroup that Make created. One that has ended meanwhile is no error.
func (t *Tree) Add(name string, pid int) error {
	for _, hierarchy := range t.hierarchies {
		procs := filepath.Join(hierarchy, t.Path(name), "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("put process %d into its cgroup: %w", pid, err)
		}
	}
	return nil
}

// Processes returns the ids of all processes in the tree, in ascending order, as this process's PID
// namespace numbers them.
func (t *Tree) Processes() ([]int, error) {
	var pids []int
	err := t.walk(func(cgroup string) error {
		content, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, line := range strings.Fields(string(content)) {
			pid, err := strconv.Atoi(line)
			if err != nil {
				return err
			}
			if pid == 0 { // how the kernel shows a process of a PID namespace that this one cannot see
				return fmt.Errorf("a process in %s belongs to another PID namespace: run this outside of any container",
					cgroup)
			}
			pids = append(pids, pid)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes of cgroup %s: %w", t.Path(""), err)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Remove kills (-9) every process of the tree, waits until they are gone, and removes the cgroups.
// A tree that doesn't exist is no error. It tries until ctx ends.
func (t *Tree) Remove(ctx context.Context) error {
	for {
		err := t.removeOnce()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: %w", t.Path(""), errors.Join(err, context.Cause(ctx)))
		case <-time.After(10 * time.Millisecond): // a dying process leaves its cgroup without an event on version 1
		}
	}
}

func (t *Tree) removeOnce() error {
	pids, err := t.Processes()
	if err != nil {
		return err
	}
	if err := kill(pids); err != nil {
		return err
	}
	var cgroups []string
	if err := t.walk(func(cgroup string) error { cgroups = append(cgroups, cgroup); return nil }); err != nil {
		return err
	}
	for _, cgroup := range slices.Backward(cgroups) { // the walk is parents first
		if err := os.Remove(cgroup); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// killTimeout is how long kill waits for the processes' end.
const killTimeout = 5 * time.Second

// kill kills (-9) processes and waits for their end: a process leaves its cgroup, and with it our
// sight, earlier than that.
func kill(pids []int) error {
	var dying []unix.PollFd
	defer func() {
		for _, process := range dying {
			unix.Close(int(process.Fd))
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open process %d: %w", pid, err)
		}
		dying = append(dying, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	deadline := time.Now().Add(killTimeout)
	for i := range dying {
		if err := await(dying[i:i+1], deadline); err != nil {
			return fmt.Errorf("wait for killed processes: %w", err)
		}
	}
	return nil
}

// await waits until a process, given by its file descriptor, has ended.
func await(process []unix.PollFd, deadline time.Time) error {
	for {
		ready, err := unix.Poll(process, int(time.Until(deadline).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case ready == 0:
			return fmt.Errorf("one has outlived SIGKILL by %v", killTimeout)
		default:
			return nil
		}
	}
}

// walk visits every cgroup of the tree, parents before children. Those that vanish meanwhile are
// passed over.
func (t *Tree) walk(visit func(cgroup string) error) error {
	for _, hierarchy := range t.hierarchies {
		err := filepath.WalkDir(filepath.Join(hierarchy, t.name),
			func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					err = visit(path)
				}
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
					return nil
				}
				return err
			})
		if err != nil {
			return err
		}
	}
	return nil
}
