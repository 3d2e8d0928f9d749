// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// drainTime is how long calls in flight may take to end after SIGTERM. The kubelet reconnects and retries what is cut off.
const drainTime = 10 * time.Second

// Run is the life of kubecri: it serves until ctx is done, then drains and returns nil. options must be complete.
func Run(ctx context.Context, options *Options) error {
	upstreamPath, err := criproxy.SocketPath(options.UpstreamEndpoint)
	if err != nil {
		return err
	}
	servePath, err := criproxy.SocketPath(options.ServeEndpoint)
	if err != nil {
		return err
	}
	upstream, err := criproxy.Dial(upstreamPath)
	if err != nil {
		return err
	}
	defer upstream.Close()
	proxy := criproxy.New(upstream, criproxy.Options{})
	listener, err := criproxy.Listen(servePath)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Serving", "endpoint", servePath, "upstream", upstreamPath, "node", options.NodeName)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(listener) }()
	select {
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", servePath, err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	proxy.Shutdown(drain)
	return err
}
