// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	//lint:ignore SA1019 client-go's dialers have these types
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	streaming "k8s.io/streaming/pkg/httpstream"
)

// tunnel is a port-forward to a scheduler's pod, as that of kubectl port-forward. The server
// at its end is verified as every other: another program of this machine, or of the node, gets
// no credentials.
type tunnel struct {
	address string // on this machine
	cancel  context.CancelFunc
	ended   chan error
	problem *problem
}

// openTunnel opens a tunnel. The caller stops it.
func openTunnel(ctx context.Context, config *rest.Config, instance Instance) (*tunnel, error) {
	wrap := func(err error) error {
		err = fmt.Errorf("forward port %d of pod %s/%s: %w", instance.Port, instance.PodNamespace, instance.Pod, err)
		if strings.Contains(err.Error(), "is forbidden: ") { // what upgrades a connection passes on the text alone
			err = fmt.Errorf("%w; it needs the right that \"kubectl auth can-i create pods/%s "+
				"--subresource=portforward -n %s\" shows: ask an administrator for it, or use --scheduler",
				err, instance.Pod, instance.PodNamespace)
		}
		return err
	}
	dialer, err := streamDialer(config, instance)
	if err != nil {
		return nil, wrap(err)
	}
	t := &tunnel{ended: make(chan error, 1), problem: &problem{}}
	var running context.Context
	running, t.cancel = context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.New(t.problem)))
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesWithContext(running, dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf(":%d", instance.Port)}, ready, io.Discard, io.Discard)
	if err != nil {
		t.cancel()
		return nil, wrap(err)
	}
	go func() { t.ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-t.ended:
		t.cancel()
		return nil, wrap(err)
	case <-ctx.Done():
		t.cancel()
		return nil, wrap(ctx.Err())
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.stop()
		return nil, wrap(err)
	}
	t.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local)))
	return t, nil
}

// stop closes the tunnel.
func (t *tunnel) stop() {
	t.cancel()
	<-t.ended
}

// problem is a sink for logs that keeps the last error: a port-forward logs why no server answers
// at the other end. It is safe for concurrent use.
type problem struct {
	mu  sync.Mutex
	err error
}

var _ klog.LogSink = (*problem)(nil)

// Init does nothing.
func (*problem) Init(klog.RuntimeInfo) {}

// Enabled says that nothing but errors is logged.
func (*problem) Enabled(int) bool { return false }

// Info does nothing.
func (*problem) Info(int, string, ...any) {}

// Error keeps the error.
func (p *problem) Error(err error, _ string, _ ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// WithValues returns the sink itself.
func (p *problem) WithValues(...any) klog.LogSink { return p }

// WithName returns the sink itself.
func (p *problem) WithName(string) klog.LogSink { return p }

func (p *problem) last() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// streamDialer returns what opens a port-forward at the API server: over a WebSocket, or with SPDY
// where the server, or a proxy on the way, knows no WebSockets for that.
func streamDialer(config *rest.Config, instance Instance) (httpstream.Dialer, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	target := &url.URL{Scheme: server.Scheme, Host: server.Host, Path: strings.TrimSuffix(server.Path, "/") +
		"/api/v1/namespaces/" + instance.PodNamespace + "/pods/" + instance.Pod + "/portforward"}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	overSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(target, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialer(overWebSocket, overSPDY, func(err error) bool {
		return streaming.IsUpgradeFailure(err) || streaming.IsHTTPSProxyError(err)
	}), nil
}
