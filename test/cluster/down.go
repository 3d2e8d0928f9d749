// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kubedevice/kubedevice/test/cgroup"
	"golang.org/x/sys/unix"
)

// Down takes the cluster of a directory down, or what is left of it after a crash. A
// directory without a cluster is no error. Of the cluster's files, its logs stay.
func Down(ctx context.Context, dir string) error {
	files := layout{dir}
	unlock, err := files.lock(ctx)
	if err != nil {
		return fmt.Errorf("take cluster down: %w", err)
	}
	defer unlock()
	if err := files.remove(ctx); err != nil {
		return fmt.Errorf("take cluster down: %w", err)
	}
	return nil
}

// remove kills the processes of the cluster, which takes mounts, links and device nodes along, then
// removes cgroups and files.
func (l layout) remove(ctx context.Context) error {
	cgroups, err := cgroup.Open(cgroup.DefaultMount, CgroupName(l.dir))
	if err != nil {
		return err
	}
	if err := cgroups.Remove(ctx); err != nil {
		return err
	}
	for _, path := range l.perishable() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// lock keeps other launchers away from the cluster's directory, which is made if need be, until
// unlock is called or the process ends. It waits while another has it.
func (l layout) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	directory, err := os.Open(l.dir)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { directory.Close() }, nil //nolint:errcheck // opened for reading
		}
		select {
		case <-ctx.Done():
			directory.Close() //nolint:errcheck // opened for reading
			return nil, fmt.Errorf("another command is starting or stopping the cluster in %s: end it first: %w",
				l.dir, err)
		case <-ticker.C:
		}
	}
}
