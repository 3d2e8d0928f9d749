// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
	"github.com/kubedevice/kubedevice/test/integration/controlplane"
	"github.com/kubedevice/kubedevice/test/kube"
	"k8s.io/apimachinery/pkg/runtime"
)

// bench is one run.
type bench struct {
	out          string
	rounds, pods int
	full         float64
	noCache      bool // of verdicts, in our scheduler
	profile      time.Duration
	comparisons  []comparison
	programs     programs
	environment  []string // of the schedulers, besides this process's
	whatIfs      int      // how many are sent at least; 0 for a comparison without

	server     *controlplane.ControlPlane
	client     *kube.Client
	scratch    string // a directory for this run
	kubeconfig string // the schedulers'
	signer     *seal.Signer
}

// run does something with an API server.
func (b *bench) run(ctx context.Context, do func(context.Context) error) (err error) {
	if b.scratch, err = os.MkdirTemp("", "kubedevice-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.scratch)
	// Nothing here makes service accounts or takes taints away; and a batch's pods should go
	// quickly.
	server, err := controlplane.Start(ctx, "--disable-admission-plugins=TaintNodesByCondition",
		"--delete-collection-workers=16")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	b.server = server
	admin := *server.Admin.Config
	admin.ContentType = runtime.ContentTypeProtobuf
	if b.client, err = kube.NewClient(&admin); err != nil {
		return err
	}
	scheduler, err := server.Client("system:kube-scheduler")
	if err != nil {
		return err
	}
	b.kubeconfig = filepath.Join(b.scratch, "kubeconfig")
	if err := writeKubeconfig(b.kubeconfig, scheduler.Config); err != nil {
		return err
	}
	if err := b.makeSealKey(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// runSizes makes all comparisons on clusters of these sizes.
func (b *bench) runSizes(ctx context.Context, sizes []int) (measured []report.Size, err error) {
	for _, nodes := range sizes {
		size, err := b.runSize(ctx, nodes)
		if err != nil {
			return nil, fmt.Errorf("%d nodes: %w", nodes, err)
		}
		measured = append(measured, size)
	}
	return measured, nil
}

// runSize makes one comparison after the other on a cluster of nodes.
func (b *bench) runSize(ctx context.Context, nodes int) (report.Size, error) {
	size := report.Size{Nodes: nodes, Full: int(b.full * float64(nodes))}
	if err := b.makeNodes(ctx, size.Nodes, size.Full); err != nil {
		return size, err
	}
	for _, c := range b.comparisons {
		pair, err := b.compare(ctx, c, size.Nodes, size.Nodes-size.Full)
		if err != nil {
			return size, fmt.Errorf("%v: %w", c.reported(), err)
		}
		size.Pairs = append(size.Pairs, pair)
	}
	return size, b.removeNodes(ctx)
}
