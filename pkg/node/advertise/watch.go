// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watchNode sends each state of the node to nodes until ctx is done, nil when it is deleted.
func watchNode(ctx context.Context, client kubernetes.Interface, name string, nodes chan<- *corev1.Node) {
	own := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	lister := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = own
			return client.CoreV1().Nodes().List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = own
			return client.CoreV1().Nodes().Watch(ctx, options)
		},
	}
	send := func(node *corev1.Node) {
		select {
		case nodes <- node:
		case <-ctx.Done():
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(lister, client),
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { send(object.(*corev1.Node)) },
			UpdateFunc: func(_, object any) { send(object.(*corev1.Node)) },
			DeleteFunc: func(any) { send(nil) },
		},
	})
	controller.RunWithContext(ctx)
}

// later returns the later of two states of a node: the result of a patch may be ahead of the watch.
// A node that was deleted and created again is a different one.
func later(a, b *corev1.Node) *corev1.Node {
	if a == nil || b == nil || a.UID != b.UID {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion); err == nil &&
		order > 0 {
		return a
	}
	return b
}
