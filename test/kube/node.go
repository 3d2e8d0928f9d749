// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// AwaitNode waits until is holds for a node, and returns the node as it is then. what completes the
// sentence "wait for node ...".
func (c *Client) AwaitNode(ctx context.Context, name, what string, is func(*corev1.Node) bool) (*corev1.Node, error) {
	nodes := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
		fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	event, err := watchtools.UntilWithSync(ctx, nodes, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		node, ok := event.Object.(*corev1.Node)
		return ok && event.Type != watch.Deleted && is(node), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for node %s %s: %w", name, what, err)
	}
	return event.Object.(*corev1.Node), nil
}
