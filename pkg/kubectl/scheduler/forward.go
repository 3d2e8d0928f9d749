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

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
)

// forward makes the port of a scheduler's pod reachable on this machine, as kubectl port-forward
// does, until stop is called. It returns the address. Whoever answers there is verified as anybody
// else is: another program of this machine, or of the node, gets no credentials.
func forward(ctx context.Context, config *rest.Config, instance Instance) (address string, stop func(), err error) {
	wrap := func(err error) error {
		return fmt.Errorf("forward port %d of pod %s/%s: %w", instance.Port, instance.PodNamespace, instance.Pod,
			cluster.Explain(err, "create", "pods/"+instance.Pod+" --subresource=portforward", instance.PodNamespace))
	}
	dialer, err := streamDialer(config, instance)
	if err != nil {
		return "", nil, wrap(err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf(":%d", instance.Port)},
		running.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return "", nil, wrap(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		cancel()
		return "", nil, wrap(err)
	case <-ctx.Done():
		cancel()
		return "", nil, wrap(ctx.Err())
	case <-ready:
	}
	stop = func() {
		cancel()
		<-ended
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		stop()
		return "", nil, wrap(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), stop, nil
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
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
