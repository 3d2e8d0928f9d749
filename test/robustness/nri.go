// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// nriPoints are the failpoints of a kubecri that is an NRI plugin: the others are those of
// calls that pass the proxy.
func nriPoints() []failpoint.Point {
	return []failpoint.Point{
		failpoint.Decoded, failpoint.Granting, failpoint.Writing, failpoint.Written, failpoint.Granted,
		failpoint.PluginCalled, failpoint.Forwarding, failpoint.Answered, failpoint.Reconciling,
	}
}

// awaitRequired waits until the node's containers with devices require kubecri. Without that the
// runtime creates them without devices while kubecri is away.
func (r *run) awaitRequired(ctx context.Context) error {
	return r.await(ctx, "node "+r.node.Name+" publishes that kubecri can be required", func() bool {
		node, err := r.cluster.Client.CoreV1().Nodes().Get(ctx, r.node.Name, metav1.GetOptions{})
		return err == nil && node.Annotations[deviceinfo.RequiredPluginAnnotation] == deviceinfo.NRIPlugin
	})
}

// registered reports whether the runtime calls the node's kubecri for containers.
func (r *run) registered(ctx context.Context) bool {
	ready, err := r.node.Get(ctx, "/readyz")
	return err == nil && strings.Contains(ready, "[+]nri ok")
}

// replace starts a second kubecri and then ends the first: it is registered when the one
// before it has ended.
func (r *run) replace(ctx context.Context, now, next *cluster.Component) error {
	if err := next.Start(); err != nil {
		return err
	}
	if err := now.Terminate(ctx); err != nil {
		return err
	}
	return r.awaitServing(ctx, next)
}
