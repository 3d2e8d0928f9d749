// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// atKubecri is a row at kubecri alone, until the test ends.
func atKubecri(ctx context.Context, t *testing.T, row string) *side {
	t.Helper()
	s := newSide(ctx, newHost(t, kubecri, shared.Nodes[1], "kubedevice", clustertest.KubecriPodResources, ""), row)
	t.Cleanup(s.end)
	return s
}

// start starts the plugin of the row with these devices.
func (s *side) start(t *testing.T, devices string) *process {
	t.Helper()
	p, err := s.plugin("plugin")
	if err != nil {
		t.Fatal(err)
	}
	p.must(t, "devices "+devices, "start")
	return p
}

// counts waits until so many devices of the row are allocatable on the node.
func (s *side) counts(t *testing.T, count int64) {
	t.Helper()
	_, err := shared.Client.AwaitNode(s.ctx, s.node.Name, fmt.Sprintf("to offer %d of %s", count, s.resource),
		func(n *corev1.Node) bool {
			offered := n.Status.Allocatable[corev1.ResourceName(s.resource)]
			return offered.Value() == count
		})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPluginsThatListTooMuchCostOthersNothing(t *testing.T) {
	ctx := tableContext(t)
	small := atKubecri(ctx, t, "small")
	p := small.start(t, "a b")
	small.counts(t, 2)
	for _, row := range []string{"large", "larger"} {
		s := atKubecri(ctx, t, row)
		s.start(t, "<x*90>-<0..3499>")
		clustertest.AwaitMetric(ctx, t, s.node, fmt.Sprintf(`kubecri_devices_unpublished{plugin="%s"} 1`, s.resource))
	}

	p.must(t, "devices a!Unhealthy b")

	small.counts(t, 1)
	text, err := small.node.Get(ctx, "/readyz?verbose")
	if err != nil || !strings.Contains(text, "the devices of diff.example/large are left out") {
		t.Errorf("readiness says %s, %v", text, err)
	}
}

func TestADeviceThatFlapsCostsFewWritesOfItsNode(t *testing.T) {
	ctx := tableContext(t)
	s := atKubecri(ctx, t, "flapping")
	p := s.start(t, "a b")
	s.counts(t, 2)
	before := writes(ctx, t, s)

	for range 30 { // in 22 seconds
		p.must(t, "devices a!Unhealthy b")
		time.Sleep(370 * time.Millisecond)
		p.must(t, "devices a b")
		time.Sleep(370 * time.Millisecond)
	}

	if count := writes(ctx, t, s) - before; count > 5 {
		t.Errorf("the node was written %d times in 22 seconds", count)
	}
	s.counts(t, 1) // it has relapsed too often to be offered again soon
}

var patches = regexp.MustCompile(`(?m)^kubecri_node_patches_total\{outcome="ok"\} (\d+)$`)

// writes is how often kubecri has written its node.
func writes(ctx context.Context, t *testing.T, s *side) int {
	t.Helper()
	text, err := s.node.Get(ctx, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	found := patches.FindStringSubmatch(text)
	if found == nil {
		t.Fatal("kubecri does not count its writes")
	}
	count, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return count
}
