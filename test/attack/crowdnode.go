// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// crowdNode creates so many pods like the attempt's, each with so many containers like its first
// one. If the node refuses them, the attempt succeeds all the same if kubecri takes more than what
// is allowed meanwhile: of memory (MiB, at most since its start), or of a CPU (in percent) while
// the kubelet tries again and again.
func crowdNode(ctx context.Context, p *trial, arguments struct {
	Pods       string `json:"pods"`
	Containers string `json:"containers"`
	Memory     int    `json:"MiB"`
	CPU        int    `json:"CPU percent"`
}) (Got, error) {
	pods, errPods := strconv.Atoi(arguments.Pods)
	containers, errContainers := strconv.Atoi(arguments.Containers)
	client, errClient := p.client(ctx)
	if err := errors.Join(errPods, errContainers, errClient); err != nil {
		return Got{}, err
	}
	var all []*corev1.Pod
	for i := range pods {
		pod, err := p.manifest()
		if err != nil {
			return Got{}, err
		}
		pod.Name = fmt.Sprintf("%s-%d", pod.Name, i)
		for k := range containers - 1 {
			another := pod.Spec.Containers[0]
			another.Name = fmt.Sprintf("c%d", k)
			pod.Spec.Containers = append(pod.Spec.Containers, another)
		}
		if pod, err = client.CreatePod(ctx, pod); err != nil {
			return Got{}, err
		}
		all = append(all, pod)
	}
	var got Got
	for _, pod := range all {
		var err error
		if _, got, err = p.awaitState(ctx, pod); err != nil || got.Outcome != RefusedByNode {
			return got, err
		}
	}
	pid := p.node(scheduled).Kubecri.PID()
	taken, err := cpuWhile(ctx, pid, 15*time.Second)
	if err != nil {
		return Got{}, err
	}
	peak, err := peakMemory(pid)
	if err != nil {
		return Got{}, err
	}
	if peak > arguments.Memory || taken > arguments.CPU {
		return Got{Succeeds, fmt.Sprintf("kubecri takes %d MiB at most, and %d percent of a CPU", peak, taken)}, nil
	}
	got.Words += fmt.Sprintf(" (kubecri takes %d MiB at most, and %d percent of a CPU)", peak, taken)
	return got, nil
}

// cpuWhile waits, and returns how much of a CPU a process took meanwhile, in percent.
func cpuWhile(ctx context.Context, pid int, wait time.Duration) (int, error) {
	before, err := ticks(pid)
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := ticks(pid)
	const perSecond = 100 // USER_HZ, see proc(5)
	return (after - before) * 100 / perSecond * int(time.Second) / int(wait), err
}

// ticks returns the CPU time that a process has taken.
func ticks(pid int) (int, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Behind the name, which is in brackets, user and system time are the 12th and 13th field.
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, errUser := strconv.Atoi(string(fields[11]))
	system, errSystem := strconv.Atoi(string(fields[12]))
	return user + system, errors.Join(errUser, errSystem)
}

// peakMemory returns the most memory that a process has taken, in MiB.
func peakMemory(pid int) (int, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		var kibibytes int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kibibytes); err == nil {
			return kibibytes >> 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}
