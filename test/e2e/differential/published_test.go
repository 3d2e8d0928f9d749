// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
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
	small.namespace = clustertest.Namespace(t, shared.Client)
	if got, err := small.run(small.pod("echo $DIFF", small.some(1)), waiting{}); err != nil || got != "b" {
		t.Errorf("a pod has %q, %v, want the healthy device b", got, err)
	}
	small.hasEvent(t, "DevicesNotPublished", "the devices of diff.example/large are left out")
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
	time.Sleep(2 * time.Second) // until the annotation has them, too, and what an earlier test left is gone
	before := s.writes(t)

	for range 30 { // in 22 seconds
		p.must(t, "devices a!Unhealthy b")
		time.Sleep(370 * time.Millisecond)
		p.must(t, "devices a b")
		time.Sleep(370 * time.Millisecond)
	}

	if count := s.writes(t) - before; count > 5 {
		t.Errorf("the node was written %d times in 22 seconds", count)
	}
	s.counts(t, 1) // it has relapsed too often to be offered again soon
}

// A flap of a second costs the pod that holds the device nothing. A failure that lasts does.
func TestADeviceThatFlapsCostsNoPod(t *testing.T) {
	ctx := tableContext(t)
	s := atKubecri(ctx, t, "blinking")
	p := s.start(t, "a")
	s.counts(t, 1)
	s.namespace = clustertest.Namespace(t, shared.Client)
	pod := clustertest.On(s.node.Name, clustertest.IdlePod(s.namespace, "holder",
		map[corev1.ResourceName]int64{corev1.ResourceName(s.resource): 1}))
	pod.Annotations = map[string]string{
		deviceinfo.OnDeviceFailureAnnotation: "Evict", deviceinfo.DeviceFailureGracePeriodAnnotation: "0s",
	}
	pod = clustertest.RunPod(ctx, t, shared.Client, pod)

	for range 2 { // the second when it has recovered from the first
		p.must(t, "devices a!Unhealthy")
		time.Sleep(time.Second)
		p.must(t, "devices a")
		time.Sleep(7 * time.Second)
	}

	if said := s.state(pod); said != "ready still" {
		t.Errorf("after flaps the pod is %s", said)
	}
	events, err := shared.Client.PodEvents(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		if strings.Contains(event.Reason, "Unhealthy") || strings.Contains(event.Reason, "Failure") {
			t.Errorf("after flaps the pod has an event %s: %s", event.Reason, event.Message)
		}
	}
	p.must(t, "devices a!Unhealthy")
	clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceFailureEvicted")
}

// A plugin registers one resource after another. It gets as many as it may have, and the names of
// the others are forgotten.
func TestAPluginThatRegistersTooManyResourcesCostsOthersNothing(t *testing.T) {
	ctx := tableContext(t)
	small := atKubecri(ctx, t, "few")
	few := small.start(t, "a b")
	small.counts(t, 2)
	s := atKubecri(ctx, t, "many")
	p := s.start(t, "x")
	before := s.openFiles(t)

	const tried, atSocket = 2000, 128 // devicemanager.MaxResourcesAtSocket
	registered := 1                   // by start
	for i := range tried {
		said, err := p.do(fmt.Sprintf("register resource=diff.example/many-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if said == "registered" {
			registered++
		}
	}

	if registered != atSocket {
		t.Errorf("%d resources are registered, want %d", registered, atSocket)
	}
	if more := s.openFiles(t) - before; more > 2*atSocket {
		t.Errorf("%d connections and files more are open for %d resources", more, registered)
	}
	few.must(t, "devices a!Unhealthy b")
	small.counts(t, 1)
	p.end()
	clustertest.AwaitMetric(ctx, t, s.node, `kubecri_device_allocatable{resource="diff.example/many"} 0`)
	clustertest.Await(ctx, t, "the connections to be closed", func() bool { return s.openFiles(t) <= before })
}

var files = regexp.MustCompile(`(?m)^process_open_fds (\d+)$`)

// openFiles is how many files and connections kubecri has open.
func (s *side) openFiles(t *testing.T) int {
	t.Helper()
	return s.metric(t, files)
}

// metric returns the value of a metric of the node's kubecri, which an expression finds.
func (s *side) metric(t *testing.T, of *regexp.Regexp) int {
	t.Helper()
	text, err := s.node.Get(s.ctx, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	found := of.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("kubecri has no metric %s", of)
	}
	value, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// hasEvent waits until the node has an event of a reason with a text.
func (s *side) hasEvent(t *testing.T, reason, message string) {
	t.Helper()
	clustertest.Await(s.ctx, t, "an event "+reason, func() bool {
		list, err := shared.Client.CoreV1().Events(metav1.NamespaceDefault).List(s.ctx, metav1.ListOptions{
			FieldSelector: "reason=" + reason + ",involvedObject.name=" + s.node.Name,
		})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, message)
		})
	})
}

var patches = regexp.MustCompile(`(?m)^kubecri_node_patches_total\{outcome="ok"\} (\d+)$`)

// writes is how often kubecri has written its node.
func (s *side) writes(t *testing.T) int {
	t.Helper()
	return s.metric(t, patches)
}
