// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/written"
)

var (
	writtenPods = flag.Int("written.pods", 200, "random pods whose requests are compared with what they get")
	writtenSeed = flag.Uint64("written.seed", 1, "seed of the random pods")
)

// For all that a user writes, the containers get exactly that, or an event names what is missing.
// The test reads the requests with a parser of its own.
func TestRequestsAreAllocatedOrRefusedWithAReason(t *testing.T) {
	c := newCluster(t)
	var fours []gpu.GPU
	for i := range 8 {
		fours = append(fours, gpu.GPU{ID: fmt.Sprint("gpu-", i), Memory: 80 << 30, Groups: []int{i / 4, 0}})
	}
	c.nodeOf("n1", fours...)
	startSchedulerWith(t, []string{noQuota})
	r := rand.New(rand.NewPCG(*writtenSeed, 0))
	bound, refused, mistaken := 0, 0, 0
	for i := range *writtenPods {
		pod := written.RandomPod(r, fmt.Sprint("p", i))
		text := written.Text(pod)
		read := written.Read(t, pod)
		pod = c.await(c.create(pod), "to be bound or refused", func(pod *corev1.Pod) bool {
			return kube.Scheduled(pod) || kube.Unschedulable(pod)
		})
		switch {
		case kube.Scheduled(pod):
			bound++
			for _, problem := range read.Differences(pod) {
				t.Errorf("pod %d is bound, and %s\n%s", i, problem, text)
			}
		default:
			refused++
			why, missing := c.whyNotScheduled(pod), read.Missing()
			if !slices.ContainsFunc(missing, func(word string) bool { return strings.Contains(why, word) }) {
				t.Errorf("pod %d waits, and its event names none of %q: %s\n%s", i, missing, why, text)
			}
		}
		for _, name := range read.Mistakes() {
			mistaken++
			c.awaitMistake(pod, name)
		}
		c.delete(pod)
	}
	t.Logf("%d pods were bound, %d refused; %d mistakes were events", bound, refused, mistaken)
	if bound < *writtenPods/5 || refused < *writtenPods/5 || mistaken < *writtenPods/10 {
		t.Error("the pods are not varied enough")
	}
}

// awaitMistake waits for an event on the pod that names a word.
func (c *cluster) awaitMistake(pod *corev1.Pod, word string) {
	c.Helper()
	what := fmt.Sprintf("an event that names %s of pod %s, which has %s", word, pod.Name, pod.Annotations)
	c.until(what, func(ctx context.Context) (bool, error) {
		messages, err := c.messages(ctx, pod, "RequestMistake")
		return slices.ContainsFunc(messages, func(message string) bool { return strings.Contains(message, word) }), err
	})
}

// whyNotScheduled waits for the scheduler's event on a pod that waits, and returns what it says.
func (c *cluster) whyNotScheduled(pod *corev1.Pod) (said string) {
	c.Helper()
	c.until("the scheduler's event on pod "+pod.Name, func(ctx context.Context) (bool, error) {
		messages, err := c.messages(ctx, pod, "FailedScheduling")
		said = strings.Join(messages, "\n")
		return len(messages) > 0, err
	})
	return said
}

// messages returns what the events on a pod with this reason say.
func (c *cluster) messages(ctx context.Context, pod *corev1.Pod, reason string) (messages []string, err error) {
	list, err := c.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(pod.UID),
	})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		messages = append(messages, list.Items[i].Message)
	}
	return messages, nil
}
