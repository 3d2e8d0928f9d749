// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// machineProcess is the machine's first process, whose namespaces are the machine's own. A
// container sees it with hostPID.
const machineProcess = "/proc/1"

// namespaces are those that a program is to share with the machine. The last one is that of its
// files, after which the paths of the container mean nothing any more.
var namespaces = []struct {
	name string
	kind int
}{{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"net", unix.CLONE_NEWNET}, {"mnt", unix.CLONE_NEWNS}}

// Enter leaves the container for the machine, and becomes a program there: process ID, environment,
// open files and control groups stay. It returns only if it fails. args begin with the program's
// path.
func Enter(args []string) error {
	// Only this thread changes its namespaces, and it is this thread that becomes the program.
	runtime.LockOSThread()
	files := make([]*os.File, len(namespaces))
	for i, namespace := range namespaces {
		var err error
		if files[i], err = os.Open(filepath.Join(machineProcess, "ns", namespace.name)); err != nil {
			return fmt.Errorf("enter the machine's namespaces: %w: the container needs hostPID and must be privileged",
				err)
		}
		defer files[i].Close() //nolint:errcheck // opened for reading
	}
	// The threads of a program share their working directory, with which none may change files.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for i, namespace := range namespaces {
		if err := unix.Setns(int(files[i].Fd()), namespace.kind); err != nil {
			return fmt.Errorf("enter the machine's %s namespace: %w: the container must be privileged", namespace.name,
				err)
		}
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Exec(args[0], args, os.Environ()); err != nil {
		return fmt.Errorf("start %s on the machine: %w", args[0], err)
	}
	return nil
}
