// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/telemetry"
)

// drainTimeout is how long calls in flight may take after SIGTERM. The kubelet reconnects and
// retries those that are aborted.
const drainTimeout = 10 * time.Second

// readyTimeout is how long a new kubecri prepares at most before it takes over from one that
// serves.
const readyTimeout = 30 * time.Second

// Run is the life of kubecri: it serves until ctx is done, then drains and returns nil. options
// must be complete.
func Run(ctx context.Context, options *Options) error {
	upstreamPath, err := criproxy.SocketPath(options.UpstreamEndpoint)
	if err != nil {
		return err
	}
	servePath, runDir := "", options.runDir
	var listener net.Listener
	if options.Mode == ModeCRI {
		if servePath, err = criproxy.SocketPath(options.ServeEndpoint); err != nil {
			return err
		}
		runDir = filepath.Dir(servePath)
		// First of all, so that no plugin's process inherits the socket.
		if listener, err = criproxy.Inherit(servePath); err != nil {
			return err
		}
	}
	if listener != nil {
		defer listener.Close()
	}
	if err := os.MkdirAll(options.StateDir, 0o700); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	upstream, err := criproxy.Dial(upstreamPath)
	if err != nil {
		return err
	}
	defer upstream.Close()
	// Everything but the proxy ends after the proxy: creations in flight need it.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	boot, err := grants.Boot(runDir)
	if err != nil {
		klog.FromContext(ctx).Error(err,
			"Cannot tell whether the machine was booted; device plugins allocate again for containers that are "+
				"created again")
	}
	n := newNode(background, options, boot, upstream)
	defer n.wait(ctx)
	defer stop()
	n.start(background, servePath)
	if options.Mode == ModeNRI {
		klog.FromContext(ctx).Info("Serving the container runtime as an NRI plugin", logkey.Endpoint, options.NRISocket,
			logkey.Node, options.NodeName)
		<-ctx.Done()
		n.nri.frontend.Drain()
		return nil
	}
	lists, err := criproxy.DialLists(upstreamPath)
	if err != nil {
		return err
	}
	defer lists.Close()
	return n.serve(ctx, servePath, listener, lists)
}

// serve serves the kubelet until ctx is done or another kubecri has taken the socket, and drains.
// It listens on path unless systemd has handed over a listener. lists is the runtime's connection
// for lists.
func (n *node) serve(ctx context.Context, path string, inherited net.Listener, lists *grpc.ClientConn) error {
	logger := klog.FromContext(ctx)
	serving, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	listener := inherited
	if inherited == nil {
		socket, err := n.takeSocket(ctx, path)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		watching.Go(func() {
			if socket.AwaitSuccessor(serving) {
				logger.Info("Another kubecri has taken the socket", logkey.Endpoint, path)
				stop()
			}
		})
		listener = socket
	}
	proxy := n.proxy(lists)
	logger.Info("Serving the container runtime", logkey.Endpoint, path, logkey.Inherited, inherited != nil,
		logkey.Upstream, n.options.UpstreamEndpoint, logkey.Node, n.options.NodeName)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", path, err)
	case <-serving.Done():
	}
	logger.Info("Draining", logkey.Limit, drainTimeout)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	proxy.Shutdown(drain)
	return <-served
}

// takeSocket listens on path. If a kubecri before this one serves it, it goes on to do so until the
// device plugins of this one have reported: nobody should wait for them who need not. The
// one before this notices and drains; the checkpoint of grants is its own until it has ended. If
// ctx is done before that, takeSocket takes nothing and returns ctx's error.
func (n *node) takeSocket(ctx context.Context, path string) (*criproxy.Socket, error) {
	if criproxy.Served(ctx, path) {
		klog.FromContext(ctx).Info("Taking over from the kubecri that serves now, when the device plugins are ready",
			logkey.Endpoint, path, logkey.Limit, readyTimeout)
		ready, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		select {
		case <-n.plugins.Synced():
		case <-ready.Done():
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return criproxy.Listen(path)
}

// serveMetrics serves health and metrics until ctx is done: to everybody on this machine, or to
// those whom the API server lets read.
func (n *node) serveMetrics(ctx context.Context, servePath string) {
	address := n.options.MetricsAddress
	switch {
	case address == "":
	case telemetry.IsLocal(address):
		serveHTTP(ctx, address, n.handler(servePath, nil), nil)
	default:
		config, err := telemetry.ServerTLS(n.options.MetricsCertificate, n.options.MetricsKey, n.options.NodeName)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Health and metrics are not served", logkey.Address, address)
			return
		}
		serveHTTP(ctx, address, n.handler(servePath, telemetry.NewAccess(clientOf(n.options.Kubeconfig))), config)
	}
}

// handler answers on the metrics address. Without access, everybody may read everything.
func (n *node) handler(servePath string, access *telemetry.Access) http.Handler {
	metrics, mayKnow := n.metrics.handler(), func(*http.Request) bool { return true }
	if access != nil {
		metrics, mayKnow = access.Guard(metrics), access.Allows
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", report(n.alive(servePath), mayKnow))
	mux.Handle("GET /readyz", report(n.ready(servePath), mayKnow))
	mux.Handle("GET /metrics", metrics)
	return mux
}
