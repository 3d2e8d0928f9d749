// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
	"github.com/kubedevice/kubedevice/test/written"
)

var (
	writtenPods = flag.Int("written.pods", 25, "random pods whose requests are compared with what their containers see")
	writtenSeed = flag.Uint64("written.seed", 1, "seed of the random pods")
)

// For all that a user writes, each container sees exactly that many GPUs, in the groups that were
// written, or an event names what is missing. Each node has one pod at a time: all GPUs are free.
func TestRequestsAreAllocatedToContainersOrRefusedWithAReason(t *testing.T) {
	begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout+time.Duration(*writtenPods)*5*time.Second)
	t.Cleanup(cancel)
	r := rand.New(rand.NewPCG(*writtenSeed, 0))
	pods := make([][]*corev1.Pod, len(shared.Nodes)) // by node
	for i := range *writtenPods {
		node := i % len(pods)
		pods[node] = append(pods[node], written.RandomPod(r, fmt.Sprint("p", i)))
	}
	counts := make([]writtenCounts, len(pods))
	t.Run("nodes", func(t *testing.T) {
		for i, node := range shared.Nodes {
			t.Run(node.Name, func(t *testing.T) {
				t.Parallel()
				namespace := clustertest.Namespace(t, shared.Client)
				for _, pod := range pods[i] {
					pod.Namespace = namespace
					counts[i].compare(ctx, t, clustertest.On(node.Name, pod))
				}
			})
		}
	})
	var sum writtenCounts
	for _, c := range counts {
		sum.ran, sum.refused, sum.containers = sum.ran+c.ran, sum.refused+c.refused, sum.containers+c.containers
		sum.gpus, sum.mistakes = sum.gpus+c.gpus, sum.mistakes+c.mistakes
	}
	t.Logf("%d pods ran, %d containers with %d GPUs; %d pods were refused; %d mistakes were events",
		sum.ran, sum.containers, sum.gpus, sum.refused, sum.mistakes)
	if least := *writtenPods / 5; sum.ran < least || sum.refused < least || sum.gpus < least ||
		sum.mistakes < *writtenPods/10 {
		t.Error("the pods are not varied enough")
	}
}

// writtenCounts are those of the pods of a node.
type writtenCounts struct {
	ran, refused, mistakes int
	containers, gpus       int // of the pods that ran, as seen in the containers
}

// compare runs a pod, compares what was written with what its containers see or with the events,
// and deletes it.
func (c *writtenCounts) compare(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	text, read := written.Text(pod), written.Read(t, pod)
	setCommands(pod)
	pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
	pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready or refused", func(pod *corev1.Pod) bool {
		return kube.Ready(pod) || kube.Unschedulable(pod)
	})
	switch missing := read.Missing(); {
	case kube.Ready(pod):
		c.ran++
		problems := read.Differences(pod)
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			seen := inspectAny(ctx, t, pod, container)
			c.containers, c.gpus = c.containers+1, c.gpus+len(seen.Visible)
			if least, most := read.GPUs(container.Name); len(seen.Visible) < least || len(seen.Visible) > most {
				problems = append(problems, fmt.Sprintf("container %s sees the GPUs %q, want %d to %d",
					container.Name, seen.Visible, least, most))
			}
			if err := expectPairs(seen.Paths); err != nil {
				problems = append(problems, fmt.Sprintf("container %s: %v", container.Name, err))
			}
		}
		for _, problem := range problems {
			t.Errorf("pod %s runs, and %s\n%s", pod.Name, problem, text)
		}
	case missing == nil:
		c.refused++
		t.Errorf("%s, and must run\n%s", shared.Client.Describe(ctx, pod), text)
	default:
		c.refused++
		awaitNamed(ctx, t, pod, "FailedScheduling", missing...)
	}
	for _, name := range read.Mistakes() {
		c.mistakes++
		awaitNamed(ctx, t, pod, "RequestMistake", name)
	}
	clustertest.DeletePod(ctx, t, shared.Client, pod)
}

// setCommands lets init containers print which GPUs they see, and all other containers wait.
func setCommands(pod *corev1.Pod) {
	// A pod without grace is gone from the API server before its containers are.
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		container.Command = clustertest.Idle
		if container.RestartPolicy == nil {
			container.Command = observe.Probe(observer.Devices(pod.Spec.NodeSelector[corev1.LabelHostname]))
		}
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Command = clustertest.Idle
	}
}

// inspectAny reads a container that runs, or what an init container has printed, and fails the test
// unless it has exactly the devices that the scheduler chose for it.
func inspectAny(ctx context.Context, t *testing.T, pod *corev1.Pod, container corev1.Container) *observe.Observation {
	t.Helper()
	isInit := slices.ContainsFunc(pod.Spec.InitContainers, func(one corev1.Container) bool {
		return one.Name == container.Name && one.RestartPolicy == nil
	})
	if !isInit {
		return inspect(ctx, t, pod, container.Name)
	}
	seen, err := observer.Choice(pod, container.Name)
	if err != nil {
		t.Fatal(err)
	}
	printed, err := shared.Client.Logs(ctx, pod, container.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := seen.Read(printed); err != nil {
		t.Fatal(err)
	}
	if err := seen.Agree(); err != nil {
		t.Error(err)
	}
	return seen
}

// expectPairs returns an error unless the groups in an allocation's paths are the inventory's
// pairs: of GPUs 0 and 1, 2 and 3, and so on.
func expectPairs(paths []string) error {
	pairs, groups := map[string]int{}, map[int]string{}
	for _, path := range paths {
		group, device, _ := strings.Cut(path, "/gpu/")
		id, _, _ := strings.Cut(device, "/")
		number, err := strconv.Atoi(strings.TrimPrefix(id, "gpu-"))
		if err != nil {
			return fmt.Errorf("%s is no GPU of the inventory: %w", path, err)
		}
		pair := number / 2
		if other, ok := pairs[group]; ok && other != pair {
			return fmt.Errorf("group %s has GPUs of the pairs %d and %d", group, pair, other)
		}
		if other, ok := groups[pair]; ok && other != group {
			return fmt.Errorf("pair %d is in the groups %s and %s", pair, group, other)
		}
		pairs[group], groups[pair] = pair, group
	}
	return nil
}

// awaitNamed waits until an event on a pod with this reason has one of the names, or ends the test.
func awaitNamed(ctx context.Context, t *testing.T, pod *corev1.Pod, reason string, names ...string) {
	t.Helper()
	clustertest.AwaitSuccess(ctx, t, fmt.Sprintf("an event %s that has one of %q", reason, names), func() error {
		events, err := shared.Client.PodEvents(ctx, pod)
		if err != nil {
			t.Fatalf("wait for an event %s of pod %s that has one of %q, %s: %v", reason, pod.Name, names,
				pod.Annotations, err)
		}
		for i := range events {
			if event := &events[i]; event.Reason == reason && slices.ContainsFunc(names, func(name string) bool {
				return strings.Contains(event.Message, name)
			}) {
				return nil
			}
		}
		return fmt.Errorf("%s: %s", pod.Annotations, shared.Client.Describe(ctx, pod))
	})
}
