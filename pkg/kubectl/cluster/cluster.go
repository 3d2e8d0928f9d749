// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster reads the nodes and pods of a cluster for kubectl device: page by page, and
// reduced to what is known about devices, so that large clusters fit.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"
)

// Reader reads nodes and pods. What it returns has no fields but those that devices are about. It
// is safe for concurrent use.
type Reader struct {
	Client corev1client.CoreV1Interface
	// PageSize is how many objects the API server lists at a time; 0 means all.
	PageSize int64
}

// Query says which objects are meant.
type Query struct {
	// Namespace is that of pods; empty means all.
	Namespace string
	// Names are those of the objects; none means all.
	Names []string
	// Labels and Fields are selectors, as in [metav1.ListOptions].
	Labels, Fields string
}

func (q Query) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: q.Labels, FieldSelector: q.Fields}
}

// Nodes returns the nodes that are meant, in the order of their names. Of nodes that are named, it
// returns those that are there together with an error for the others.
func (r *Reader) Nodes(ctx context.Context, query Query) ([]*corev1.Node, error) {
	if len(query.Names) > 0 {
		return named(query.Names, func(name string) (*corev1.Node, error) {
			node, err := r.Client.Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, Explain(err, "get", "nodes", "")
			}
			return trimNode(node), nil
		})
	}
	var nodes []*corev1.Node
	err := r.Each(ctx, query.options(), func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.Client.Nodes().List(ctx, options)
	}, func(object runtime.Object) {
		nodes = append(nodes, trimNode(object.(*corev1.Node)))
	})
	return nodes, Explain(err, "list", "nodes", "")
}

// Pods returns those of the pods that are meant for which keep holds, in the order of namespaces
// and names. Of pods that are named, it returns those that are there together with an error for the
// others. keep sees all fields.
func (r *Reader) Pods(ctx context.Context, query Query, keep func(*corev1.Pod) bool) ([]*corev1.Pod, error) {
	if len(query.Names) > 0 {
		return named(query.Names, func(name string) (*corev1.Pod, error) {
			pod, err := r.Client.Pods(query.Namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, Explain(err, "get", "pods", query.Namespace)
			}
			return trimPod(pod), nil
		})
	}
	var pods []*corev1.Pod
	err := r.Each(ctx, query.options(), func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.Client.Pods(query.Namespace).List(ctx, options)
	}, func(object runtime.Object) {
		if pod := object.(*corev1.Pod); keep(pod) {
			pods = append(pods, trimPod(pod))
		}
	})
	return pods, Explain(err, "list", "pods", query.Namespace)
}

// Each calls found with each object that list returns, page by page.
func (r *Reader) Each(
	ctx context.Context, options metav1.ListOptions, list pager.ListPageFunc, found func(runtime.Object),
) error {
	pages := pager.New(list)
	pages.PageSize = r.PageSize
	return pages.EachListItem(ctx, options, func(object runtime.Object) error {
		found(object)
		return nil
	})
}

// named returns the objects that are there, and the errors of the others.
func named[T any](names []string, get func(string) (T, error)) ([]T, error) {
	var found []T
	var missing []error
	for _, name := range names {
		if object, err := get(name); err != nil {
			missing = append(missing, err)
		} else {
			found = append(found, object)
		}
	}
	return found, errors.Join(missing...)
}

// Explain says what to do about an error of the API server.
func Explain(err error, verb, resource, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	canI := fmt.Sprintf("kubectl auth can-i %s %s", verb, resource)
	switch {
	case resource == "nodes", resource == "resourceslices", strings.Contains(resource, "admissionpolic"):
		// They have no namespace.
	case namespace == "":
		canI += " -A"
	default:
		canI += " -n " + namespace
	}
	return fmt.Errorf("%w; it needs the right that \"%s\" shows: ask an administrator for it", err, canI)
}
