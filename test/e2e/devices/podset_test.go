// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// podSet is the pods of a namespace, by name.
type podSet = clustertest.PodSet

// awaitPods waits until is holds for the pods of a namespace, and returns them as they are then.
// what completes the sentence "wait for the pods ...".
func awaitPods(ctx context.Context, t *testing.T, namespace, what string, is func(podSet) bool) podSet {
	t.Helper()
	seen := podSet{}
	err := seen.Follow(ctx, shared.Client, namespace, func() (bool, error) { return is(seen), nil })
	if err != nil {
		t.Fatalf("wait for the pods %s: %v; they are %s", what, err, seen)
	}
	return seen
}
