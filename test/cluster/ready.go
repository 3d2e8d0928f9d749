// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pollInterval is how often a condition is looked at that nothing announces.
const pollInterval = 50 * time.Millisecond

// await waits until check returns nil, ctx ends, or one of the programs that it takes has ended.
func await(ctx context.Context, what string, programs []*Component, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, program := range programs {
			if died := program.died(); died != nil {
				return fmt.Errorf("wait for %s: %w", what, died)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", what, context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// awaitSocket waits until one of the node's programs serves on its socket.
func (n *Node) awaitSocket(ctx context.Context, program *Component, path string) error {
	return await(ctx, path+" on "+n.Name, []*Component{program}, func(ctx context.Context) error {
		conn, err := n.sandbox.Dial(ctx, "unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// awaitKubecri waits until kubecri serves the kubelet, or is registered with the runtime.
func (n *Node) awaitKubecri(ctx context.Context) error {
	if !n.options.nri() {
		return n.awaitSocket(ctx, n.Kubecri, kubecriSocket)
	}
	return await(ctx, "kubecri with NRI on "+n.Name, []*Component{n.Kubecri}, func(ctx context.Context) error {
		ready, err := n.Get(ctx, "/readyz")
		if err == nil && !strings.Contains(ready, "[+]nri ok") {
			err = errors.New(ready)
		}
		return err
	})
}

func (c *Cluster) awaitAPIServer(ctx context.Context) error {
	return await(ctx, "the API server", []*Component{c.Etcd, c.APIServer}, func(ctx context.Context) error {
		return c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// AwaitReady waits until the API server answers and pods can be scheduled to every node.
func (c *Cluster) AwaitReady(ctx context.Context) error {
	if err := c.awaitAPIServer(ctx); err != nil {
		return err
	}
	err := await(ctx, "the default service account", c.Components(), func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return await(ctx, "the nodes", c.Components(), func(ctx context.Context) error {
		nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(nodes.Items) < len(c.Nodes) {
			return fmt.Errorf("%d of %d nodes have registered", len(nodes.Items), len(c.Nodes))
		}
		for _, node := range nodes.Items {
			if err := schedulable(node); err != nil {
				return err
			}
		}
		return nil
	})
}

func schedulable(node corev1.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not ready: %s", node.Name, condition.Message)
		}
	}
	for _, taint := range node.Spec.Taints {
		return fmt.Errorf("node %s has taint %s", node.Name, taint.ToString())
	}
	if len(node.Status.Conditions) == 0 {
		return errors.New("node " + node.Name + " has not reported yet")
	}
	return nil
}
