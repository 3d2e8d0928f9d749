// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/bench/figures"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// holders is how many pods hold a GPU.
const holders = 8

// stopTimeout is how long the cluster may take to stop.
const stopTimeout = time.Minute

// auditPolicy logs each write once.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
`

// bench is one run.
type bench struct {
	options         cluster.Options
	scratch         string // a directory for this run
	quiet, duration time.Duration
}

// run measures one node with one number of pods after the other.
func (b *bench) run(ctx context.Context, counts []int) (r *result, err error) {
	policy, audit := filepath.Join(b.scratch, "policy.yaml"), filepath.Join(b.scratch, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return nil, err
	}
	b.options.ExtraArgs = map[string][]string{
		"kube-apiserver": {"--audit-policy-file=" + policy, "--audit-log-path=" + audit},
	}
	c, err := cluster.Start(ctx, b.options)
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, c.Stop(stopping))
	}()
	r = &result{
		Machine: fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version()), Seconds: b.duration.Seconds(),
	}
	running := 0
	for _, count := range counts {
		fmt.Fprintf(os.Stderr, "%d pods: start\n", count)
		if err := startPods(ctx, c, running, count); err != nil {
			return nil, fmt.Errorf("%d pods: %w", count, err)
		}
		running = count
		fmt.Fprintf(os.Stderr, "%d pods: measure for %v, after a wait of %v\n", count, b.duration, b.quiet)
		if err := sleep(ctx, b.quiet); err != nil {
			return nil, err
		}
		m, err := b.measure(ctx, c.Nodes[0], audit)
		if err != nil {
			return nil, fmt.Errorf("%d pods: %w", count, err)
		}
		m.Pods = count
		r.Measurements = append(r.Measurements, m)
	}
	r.Goals = goalsOf(r)
	return r, nil
}

// startPods starts pods until there are count, and waits until they are ready.
func startPods(ctx context.Context, c *cluster.Cluster, running, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(10)
	for i := running; i < count; i++ {
		group.Go(func() error {
			limits := map[corev1.ResourceName]int64{}
			if i < holders {
				limits[corev1.ResourceName(gpu.Resource)] = 1
			}
			_, err := c.Client.RunPod(ctx,
				clustertest.IdlePod(corev1.NamespaceDefault, fmt.Sprintf("idle-%d", i), limits))
			return err
		})
	}
	return group.Wait()
}

// measure measures the node's programs.
func (b *bench) measure(ctx context.Context, node *cluster.Node, audit string) (m measurement, err error) {
	pids := map[string]int{kubecri: node.Kubecri.PID(), "kubelet": node.Kubelet.PID(),
		"containerd": node.Containerd.PID()}
	callsBefore, err := callsOf(ctx, node)
	if err != nil {
		return m, err
	}
	writesBefore, err := writesOf(audit)
	if err != nil {
		return m, err
	}
	before := map[string]time.Duration{}
	for name, pid := range pids {
		if before[name], err = figures.CPU(pid); err != nil {
			return m, err
		}
	}
	began := time.Now()
	m.Programs = map[string]program{}
	for time.Since(began) < b.duration {
		if err := sleep(ctx, min(time.Second, b.duration)); err != nil {
			return m, err
		}
		for name, pid := range pids {
			memory, err := figures.MemoryOf(pid)
			if err != nil {
				return m, err
			}
			p := m.Programs[name]
			p.RSS, p.Anonymous = max(p.RSS, memory.Resident), max(p.Anonymous, memory.Anonymous)
			m.Programs[name] = p
		}
	}
	took := time.Since(began)
	for name, pid := range pids {
		after, err := figures.CPU(pid)
		if err != nil {
			return m, err
		}
		p := m.Programs[name]
		p.CPUPercent = 100 * (after - before[name]).Seconds() / took.Seconds()
		m.Programs[name] = p
	}
	calls, err := callsOf(ctx, node)
	if err != nil {
		return m, err
	}
	m.CallsPerSecond = map[string]float64{}
	for method, count := range calls {
		if count > callsBefore[method] {
			m.CallsPerSecond[method] = (count - callsBefore[method]) / took.Seconds()
		}
	}
	writes, err := writesOf(audit)
	if err != nil {
		return m, err
	}
	m.Writes = map[string]int{}
	for client, count := range writes {
		if count > writesBefore[client] {
			m.Writes[client] = count - writesBefore[client]
		}
	}
	return m, nil
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
