// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on each architecture that Go knows.
const tick = 10 * time.Millisecond

// flagsField and startField are the numbers of the fields of /proc/PID/stat that have the kernel's
// flags of the process, and the time after boot at which it started, counted from the one after the
// command's name. See proc_pid_stat(5): they are 9 and 22 of all.
const (
	flagsField = 9 - 3
	startField = 22 - 3
)

// exiting is the kernel's flag PF_EXITING: the thread has ended, or is about to. In hierarchies of
// version 1, such a thread is in the root cgroup, as proc_cgroup_show of the kernel has it.
const exiting = 0x4

// maxThreads is how many threads are read of a process whose main thread has ended.
const maxThreads = 64

// processes finds the cgroups of processes in a /proc.
type processes struct {
	proc fs.FS
}

// sinceBoot returns the time since the host has booted, with the time that it slept, in ticks. See
// proc_uptime(5).
func (p processes) sinceBoot() (int64, error) {
	text, err := fs.ReadFile(p.proc, "uptime")
	if err != nil {
		return 0, err
	}
	seconds, _, _ := strings.Cut(string(text), " ")
	since, err := time.ParseDuration(seconds + "s")
	return int64(since / tick), err
}

// errReused says that the PID is another process's by now.
var errReused = errors.New("the process has ended, and its PID is another one's")

// cgroups returns what /proc says of the cgroups of a process that was running so many ticks after
// boot. It is an error if the process has ended since: a process that started at that time, or
// later, is another one. Where the main thread has ended, and others run, it is what /proc says of
// one of those.
func (p processes) cgroups(pid int, running int64) (string, error) {
	process := strconv.Itoa(pid)
	before, err := p.stat(process)
	if err != nil {
		return "", err
	}
	if before.started >= running {
		return "", errReused
	}
	thread := process
	if before.exiting {
		thread = p.liveThread(process)
	}
	text, err := fs.ReadFile(p.proc, thread+"/cgroup")
	if err != nil {
		return "", err
	}
	after, err := p.stat(process)
	if err != nil {
		return "", err
	}
	if before.started != after.started {
		return "", errReused
	}
	return string(text), nil
}

// liveThread returns the directory in /proc of the first of a process's threads that has not ended,
// or of the process if none of the first ones is so. A process that traces its own threads can keep
// any number of them that have ended, so the threads that are read are bounded.
func (p processes) liveThread(process string) string {
	file, err := p.proc.Open(process + "/task")
	if err != nil {
		return process
	}
	defer func() { _ = file.Close() }() // it was only read
	dir, ok := file.(fs.ReadDirFile)
	if !ok {
		return process
	}
	threads, _ := dir.ReadDir(maxThreads) // what it has read before an error counts
	for _, entry := range threads {
		thread := process + "/task/" + entry.Name()
		if stat, err := p.stat(thread); err == nil && !stat.exiting {
			return thread
		}
	}
	return process
}

// stat is what /proc says of a process or a thread.
type stat struct {
	started int64 // in ticks after boot
	exiting bool
}

// stat reads the stat of a process or a thread, by its directory in /proc.
func (p processes) stat(process string) (stat, error) {
	text, err := fs.ReadFile(p.proc, process+"/stat")
	if err != nil {
		return stat{}, err
	}
	// The command's name is in parentheses, and may have any bytes itself.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= startField {
		return stat{}, fmt.Errorf("/proc/%s/stat has %d fields after the command's name", process, len(fields))
	}
	flags, flagsErr := strconv.ParseUint(string(fields[flagsField]), 10, 64)
	started, err := strconv.ParseInt(string(fields[startField]), 10, 64)
	return stat{started, flags&exiting != 0}, errors.Join(flagsErr, err)
}

// idsIn returns what may be IDs of containers in what /proc says of a process's cgroups: of each
// hierarchy, outermost first.
//
// The kubelet has the runtime name a container's cgroup by its driver: the ID alone with cgroupfs,
// and <runtime>-<ID>.scope with systemd, such as cri-containerd-<ID>.scope and crio-<ID>.scope. A
// containerd that does not agree with the kubelet has <slice>:cri-containerd:<ID>.
func idsIn(cgroups string) (hierarchies [][]string) {
	for line := range strings.Lines(cgroups) {
		_, line, _ = strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, path, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		var ids []string
		for segment := range strings.SplitSeq(strings.TrimSuffix(path, " (deleted)"), "/") {
			id := strings.TrimSuffix(segment, ".scope")
			id = id[strings.LastIndexAny(id, "-:")+1:]
			if len(id) >= minID {
				ids = append(ids, id)
			}
		}
		if ids != nil {
			hierarchies = append(hierarchies, ids)
		}
	}
	return hierarchies
}

// minID is less than the length of any runtime's IDs, which have 64 digits, and more than that of
// most other names.
const minID = 12
