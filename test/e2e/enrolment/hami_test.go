// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// memory and cores are HAMi's resources, for each GPU of a container.
const (
	memory corev1.ResourceName = "nvidia.com/gpumem"
	cores  corev1.ResourceName = "nvidia.com/gpucores"
)

// The steps of docs/deploy/from-hami.md for a node: a device plugin for the kubelet that lists each
// GPU ten times, as HAMi's does, plays its part. What is not there is HAMi's scheduler and webhook.
// The kubelet remembers the plugin, and kubecri takes the resource over after a minute.
func TestANodeGoesOverFromHAMi(t *testing.T) {
	s := begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	s.ctx = ctx
	const gpus, split = 8, 10
	var virtual []string
	for i := range gpus * split {
		virtual = append(virtual, fmt.Sprintf("GPU-%d-%d", i/split, i%split))
	}
	stop := s.startPluginOf(observe.Resource, virtual...)
	old := clustertest.RunPod(s.ctx, t, shared.Client,
		clustertest.IdlePod(s.namespace, "old", map[corev1.ResourceName]int64{observe.Resource: 1}))

	// Drained, and without its plugin.
	clustertest.DeletePod(s.ctx, t, shared.Client, old)
	stop()
	s.awaitCount(observe.Resource, 0)
	s.writeConfiguration("virtualDevices: {nvidia.com/gpu: 10}\n")
	s.report(enrolment.Done, "enrol")
	s.awaitCount(observe.Resource, gpus*split)
	s.awaitCount(cores, gpus*100)
	published := s.apiNode().Status.Allocatable[memory]
	each := published.Value() / gpus

	// Three pods with 30 cores fit on a GPU, so more pods count one GPU than there are.
	var pods []*corev1.Pod
	for i := range 3 * gpus {
		pods = append(pods, clustertest.CreatePod(s.ctx, t, shared.Client, clustertest.IdlePod(s.namespace,
			fmt.Sprint("share-", i), map[corev1.ResourceName]int64{
				observe.Resource: 1, memory: each / 4, cores: 30,
			})))
	}
	observer, err := observe.New(s.ctx, shared)
	s.must(err)
	sharers := map[string]int{}
	for _, pod := range pods {
		running := clustertest.AwaitPod(s.ctx, t, shared.Client, pod, "to be ready", kube.Ready)
		seen, err := observer.Observe(s.ctx, running, "main")
		s.must(err)
		if len(seen.Visible) != 1 {
			t.Errorf("%s has the devices %q, want one", pod.Name, seen.Visible)
			continue
		}
		sharers[seen.Visible[0]]++
	}
	for device, count := range sharers {
		if count != 3 {
			t.Errorf("%d pods share %s, want 3", count, device)
		}
	}
	s.checkBystander()

	s.report(enrolment.Done, "leave", "--drain")
	node := s.apiNode()
	for _, name := range []corev1.ResourceName{memory, cores} {
		if left, listed := node.Status.Capacity[name]; listed {
			t.Errorf("the node still lists %v of %s", &left, name)
		}
	}
	s.checkLeft()
	s.checkBystander()
}

// writeConfiguration writes the configuration with which the node is to be enrolled: what enrol
// writes by itself, and more.
func (s *story) writeConfiguration(more string) {
	s.Helper()
	const flag = "--kubecri-config="
	args := s.node.Kubecri("enrol").Args
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if at < 0 {
		s.Fatalf("%q names no configuration", args)
	}
	file := strings.TrimPrefix(args[at], flag)
	s.report(enrolment.Done, "enrol")
	written, err := os.ReadFile(file)
	s.must(err)
	s.report(enrolment.Done, "leave")
	s.must(os.MkdirAll(filepath.Dir(file), 0o755))
	s.must(os.WriteFile(file, append(written, more...), 0o644))
	s.Cleanup(func() { s.must(os.Remove(file)) })
}
