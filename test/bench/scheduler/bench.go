// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
	"github.com/kubedevice/kubedevice/test/integration/controlplane"
	"github.com/kubedevice/kubedevice/test/kube"
	"k8s.io/apimachinery/pkg/runtime"
)

// bench is one run.
type bench struct {
	out          string
	rounds, pods int
	profile      time.Duration
	ways         []way
	programs     programs

	client     *kube.Client
	scratch    string // a folder for this run
	kubeconfig string // the schedulers'
}

// run measures all ways on clusters of these sizes.
func (b *bench) run(ctx context.Context, sizes []int) (measured []report.Size, err error) {
	if b.scratch, err = os.MkdirTemp("", "kubedevice-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.scratch)
	// Nothing here makes service accounts or takes taints away; and a round's pods should go quickly.
	server, err := controlplane.Start(ctx, "--disable-admission-plugins=TaintNodesByCondition", "--delete-collection-workers=16")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	admin := *server.Admin.Config
	admin.ContentType = runtime.ContentTypeProtobuf
	if b.client, err = kube.NewClient(&admin); err != nil {
		return nil, err
	}
	scheduler, err := server.Client("system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	b.kubeconfig = filepath.Join(b.scratch, "kubeconfig")
	if err := writeKubeconfig(b.kubeconfig, scheduler.Config); err != nil {
		return nil, err
	}
	for _, nodes := range sizes {
		size, err := b.runSize(ctx, nodes)
		if err != nil {
			return nil, fmt.Errorf("%d nodes: %w", nodes, err)
		}
		measured = append(measured, size)
	}
	return measured, nil
}

// runSize measures all ways, which take turns in each round; in every other round in the opposite order, so that whatever
// grows in a round does as much good as harm.
func (b *bench) runSize(ctx context.Context, nodes int) (report.Size, error) {
	size := report.Size{Nodes: nodes, Samples: map[string][]report.Sample{}}
	if err := b.makeNodes(ctx, nodes); err != nil {
		return size, err
	}
	order := slices.Clone(b.ways)
	for round := range b.rounds {
		for _, w := range order {
			sample, err := b.measure(ctx, w, nodes)
			if err != nil {
				return size, fmt.Errorf("round %d of %s: %w", round+1, w.name, err)
			}
			size.Samples[w.name] = append(size.Samples[w.name], sample)
			fmt.Fprintf(os.Stderr, "%d nodes, round %d of %d, %s: %.1f pods/s, %.2f ms CPU per pod\n",
				nodes, round+1, b.rounds, w.name, sample.PodsPerSecond(), sample.CPUPerPod())
		}
		slices.Reverse(order)
	}
	return size, b.removeNodes(ctx)
}
