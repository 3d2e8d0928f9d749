// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/registry"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

const (
	// registryAddress is where a node finds the registry, on its own loopback device.
	registryAddress = "127.0.0.1:5000"
	// processes is how many specs of a side run at the same time. They wait most of the time.
	processes = 6
	// reportName is the name of ginkgo's report.
	reportName = "report.json"

	startTimeout = 3 * time.Minute
	runTimeout   = 20 * time.Minute
)

// bench is a cluster whose two nodes are the two sides.
type bench struct {
	dir, programs   string
	cluster         *cluster.Cluster
	direct, proxied *cluster.Node
	registries      []*http.Server
}

func openBench(ctx context.Context, options Options) (_ *bench, err error) {
	described, err := cluster.Default(2)
	if err != nil {
		return nil, err
	}
	b := &bench{dir: filepath.Join(options.Dir, string(options.Runtime)), programs: described.Programs}
	if err := os.RemoveAll(b.dir); err != nil {
		return nil, err
	}
	described.Dir = filepath.Join(b.dir, "cluster")
	described.Nodes[1].Kubecri = nil
	for i := range described.Nodes {
		described.Nodes[i].Runtime = options.Runtime
		described.Nodes[i].Registry = "http://" + registryAddress
	}
	fmt.Fprintf(options.Progress, "%s: starting a cluster\n", options.Runtime)
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if b.cluster, err = cluster.Start(starting, described); err != nil {
		return nil, err
	}
	b.proxied, b.direct = b.cluster.Nodes[0], b.cluster.Nodes[1]
	if err := b.prepare(starting); err != nil {
		return nil, errors.Join(err, b.close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// prepare stops the kubelets and starts the registries.
func (b *bench) prepare(ctx context.Context) error {
	archive, err := os.Open(filepath.Join(b.programs, image.ConformanceArchive))
	if err != nil {
		return fmt.Errorf("%w: build it first", err)
	}
	defer archive.Close() //nolint:errcheck // opened for reading
	images, err := registry.Read(archive)
	if err != nil {
		return err
	}
	for _, node := range b.cluster.Nodes {
		if err := node.Kubelet.Terminate(ctx); err != nil {
			return err
		}
		if err := b.serve(node, images); err != nil {
			return fmt.Errorf("serve images on %s: %w", node.Name, err)
		}
	}
	return nil
}

// serve lets this process serve images in the network of a node.
func (b *bench) serve(node *cluster.Node, images http.Handler) error {
	var listener net.Listener
	err := node.Sandbox().Do(func() (err error) {
		listener, err = net.Listen("tcp", registryAddress)
		return err
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: images, ReadHeaderTimeout: time.Minute}
	b.registries = append(b.registries, server)
	go server.Serve(listener) //nolint:errcheck // it ends when it is closed
	return nil
}

// close takes the cluster down.
func (b *bench) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var errs []error
	for _, server := range b.registries {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, b.cluster.Stop(ctx))...)
}

// ginkgo runs critest on a node. It returns an error when a spec failed, too: the report in dir
// says more.
func (b *bench) ginkgo(ctx context.Context, node *cluster.Node, dir, focus string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	args := []string{
		"run", "--keep-going", "--no-color",
		fmt.Sprintf("--seed=%d", seed), fmt.Sprintf("--procs=%d", processes),
		"--output-dir=" + dir, "--json-report=" + reportName,
		"--skip=" + leftOut.pattern(),
	}
	if focus != "" {
		args = append(args, "--focus="+focus)
	}
	return node.Sandbox().Run(ctx, sandbox.Command{
		Path: filepath.Join(b.programs, "ginkgo"),
		Args: append(args, filepath.Join(b.programs, "critest.test"), "--",
			"-runtime-endpoint=unix://"+node.Endpoint()),
		Env:    b.cluster.Environment(),
		Stdout: out,
		Stderr: out,
	})
}
