// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/test/kube"
)

// testdata/releases has, one directory a release, the annotation of a node with four GPUs, and that
// of a pod which was allocated the first of them: as the published KubeDevice wrote them, as v0.1.0
// does, and as a next release may, with fields that are unknown yet. A scheduler may meet any of
// them during an upgrade. A release adds what it writes, and changes nothing.
func TestNodesAndPodsOfOtherReleasesAreUnderstood(t *testing.T) {
	startScheduler(t)
	directories, err := filepath.Glob("testdata/releases/*")
	if err != nil || len(directories) < 3 {
		t.Fatalf("there are the releases %q, error %v", directories, err)
	}
	for _, directory := range directories {
		t.Run(filepath.Base(directory), func(t *testing.T) {
			read := func(name string) string {
				text, err := os.ReadFile(filepath.Join(directory, name))
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSpace(string(text))
			}
			c := newCluster(t)
			c.node("n1", 4)
			c.annotate("n1", read("node.json"))
			held := newPod("held", 0)
			held.Spec.SchedulerName = "other"
			c.bindBy(c.create(held), "n1", read("pod.json"))
			var allocated []string
			for _, name := range []string{"a", "b", "c"} {
				allocated = append(allocated, devices(c.schedule(annotatedPod(name))))
			}
			slices.Sort(allocated)
			if diff := cmp.Diff([]string{"n1-gpu-1", "n1-gpu-2", "n1-gpu-3"}, allocated); diff != "" {
				t.Errorf("GPUs that are allocated in addition to those that are held (-want +got):\n%s", diff)
			}
			c.await(c.create(annotatedPod("late")), "to be found unschedulable", kube.Unschedulable)
		})
	}
}
