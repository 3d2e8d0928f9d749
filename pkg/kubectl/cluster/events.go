// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Events returns events that a field selector chooses, newest first, at most so many. namespace may
// be empty, for all.
func (r *Reader) Events(ctx context.Context, namespace string, about fields.Set, most int) ([]corev1.Event, error) {
	options := metav1.ListOptions{FieldSelector: about.String(), Limit: r.PageSize}
	list, err := r.Client.Events(namespace).List(ctx, options)
	if err != nil {
		return nil, Explain(err, "list", "events", namespace)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return LastSeen(&b).Compare(LastSeen(&a)) })
	return list.Items[:min(most, len(list.Items))], nil
}

// LastSeen returns when an event was last seen.
func LastSeen(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	times := []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
