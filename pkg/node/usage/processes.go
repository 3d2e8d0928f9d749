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

// startField is the number of the field of /proc/PID/stat that has the time after boot at which the
// process started, counted from the one after the command's name. See proc_pid_stat(5): it is 22 of
// all.
const startField = 22 - 3

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
// later, is another one.
func (p processes) cgroups(pid int, running int64) (string, error) {
	before, err := p.start(pid)
	if err != nil {
		return "", err
	}
	if before >= running {
		return "", errReused
	}
	text, err := fs.ReadFile(p.proc, strconv.Itoa(pid)+"/cgroup")
	if err != nil {
		return "", err
	}
	after, err := p.start(pid)
	if err != nil {
		return "", err
	}
	if before != after {
		return "", errReused
	}
	return string(text), nil
}

// start returns when the process started, in ticks after boot.
func (p processes) start(pid int) (int64, error) {
	text, err := fs.ReadFile(p.proc, strconv.Itoa(pid)+"/stat")
	if err != nil {
		return 0, err
	}
	// The command's name is in parentheses, and may have any bytes itself.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= startField {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the command's name", pid, len(fields))
	}
	return strconv.ParseInt(string(fields[startField]), 10, 64)
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
