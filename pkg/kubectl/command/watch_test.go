// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// watched is a command that runs until its context ends.
type watched struct {
	t     *testing.T
	lines chan string
}

// watch starts a command line and follows what it prints.
func (f *fixture) watch(t *testing.T, line string) *watched {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	w := &watched{t, make(chan string)}
	done := make(chan int, 1)
	go func() {
		done <- f.runTo(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(""), Out: in, ErrOut: io.Discard})
		in.Close()
	}()
	go func() {
		defer close(w.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		for line := range w.lines {
			t.Errorf("%q comes unasked", line)
		}
		if status := <-done; status != 0 {
			t.Errorf("exit status %d after an interruption", status)
		}
	})
	return w
}

// want waits for lines with these words each.
func (w *watched) want(lines ...string) {
	w.t.Helper()
	for _, want := range lines {
		select {
		case got, ok := <-w.lines:
			if !ok || !slices.Equal(strings.Fields(got), strings.Fields(want)) {
				w.t.Fatalf("got  %q\nwant %q", got, want)
			}
		case <-time.After(30 * time.Second):
			w.t.Fatalf("%q does not come", want)
		}
	}
}

func (f *fixture) createPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := f.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) updatePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := f.client.CoreV1().Pods(pod.Namespace).Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) deletePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := f.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAWatchedPodIsPrintedWhenItsDevicesChangeAndAtNoOtherTime(t *testing.T) {
	pod := counting(newPod("p"), 1)
	f := newFixture(pod.DeepCopy())
	w := f.watch(t, "pods --watch")
	w.want("POD CONTAINER NODE DEVICE HAS STATE SINCE REASON",
		"p main <none> <none> requests 1 nvidia.com/gpu Waiting 3h no scheduler has tried it yet")
	f.createPod(t, newPod("plain"))
	pod = bound(t, pod, "n", map[string]map[string]int64{"main": wholeGPU(0)})
	f.updatePod(t, pod)
	w.want("p main n gpu/gpu-0 cards 1, memory 80 GiB Bound 120m <none>")
	pod.Labels = map[string]string{"new": "label"}
	f.updatePod(t, pod)
	f.updatePod(t, running(pod))
	w.want("p main n gpu/gpu-0 cards 1, memory 80 GiB Granted 120m <none>")
	f.deletePod(t, pod)
	w.want("p main n gpu/gpu-0 cards 1, memory 80 GiB Deleted 120m <none>")
}

func TestAWatchedPodThatRequestsNoDevicesAnyMoreIsPrintedAsDeleted(t *testing.T) {
	for flags, want := range map[string][]string{
		"--no-headers": {
			"p main <none> <none> requests 2 gpu/a/cards Waiting 3h no scheduler has tried it yet",
			"p main <none> <none> requests 2 gpu/a/cards Deleted 3h <none>",
			"q main <none> <none> requests 1 nvidia.com/gpu Waiting 3h no scheduler has tried it yet",
		},
		"-o name": {"pod/p", "pod/p", "pod/q"},
	} {
		pod := newPod("p")
		pod.Annotations[deviceinfo.Annotation] = `{"runningcontainer":{"main":{"requests":{"gpu/a/cards":2}}}}`
		f := newFixture(pod.DeepCopy())
		w := f.watch(t, "pods --watch "+flags)
		w.want(want[0])
		bare := newPod("p")
		f.updatePod(t, bare)
		w.want(want[1])
		f.deletePod(t, bare) // of which nothing is printed
		f.createPod(t, counting(newPod("q"), 1))
		w.want(want[2])
	}
}

func TestAPodThatIsMadeAgainIsPrintedAfterTheOneThatIsGone(t *testing.T) {
	var printed []string
	shown := func(pod *devices.Pod) bool { return pod != nil }
	w := &podsWatch{shown: shown, printed: map[apitypes.UID]*devices.Pod{}, print: func(pods []*devices.Pod) error {
		for _, pod := range pods {
			printed = append(printed, pod.UID+" "+string(pod.State))
		}
		return nil
	}}
	of := func(uid apitypes.UID) *corev1.Pod {
		pod := counting(newPod("p"), 1)
		pod.UID = uid
		return pod
	}
	for _, changes := range [][]cluster.Change{
		{{Pod: of("2")}},
		{{Pod: of("2"), Gone: true}, {Pod: of("1")}},
		{{Pod: of("1"), Gone: true}, {Pod: of("3")}},
	} {
		if err := w.changed(changes); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"2 Waiting", "2 Deleted", "1 Waiting", "1 Deleted", "3 Waiting"}
	if !slices.Equal(printed, want) {
		t.Errorf("got %q, want %q", printed, want)
	}
}

func TestAWatchedNodeIsPrintedWhenItsDevicesOrTheirHoldersChange(t *testing.T) {
	node := newNode(t, "n", gpus(1))
	f := newFixture(node.DeepCopy())
	w := f.watch(t, "nodes --watch --no-headers")
	w.want("n gpu/gpu-0 gpugrp1/0/gpugrp0/0 <none> 80 GiB free Healthy <none>")
	pod := bound(t, newPod("p"), "n", map[string]map[string]int64{"main": someOfGPU(0, 0, 20*gib)})
	f.createPod(t, pod)
	w.want("n gpu/gpu-0 gpugrp1/0/gpugrp0/0 <none> 80 GiB shared 25% Healthy default/p/main memory 20 GiB (bound)")
	node.Labels["beat"] = "heart"
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(),
	}}
	unhealthy := newNode(t, "n", without(gpus(1), "gpu-0"))
	for _, next := range []*corev1.Node{node, unhealthy} {
		if _, err := f.client.CoreV1().Nodes().Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.want("n gpu/gpu-0 gpugrp1/0/gpugrp0/0 <none> 80 GiB shared 25% Unhealthy default/p/main memory 20 GiB (bound)")
	f.deletePod(t, pod)
	w.want("n gpu/gpu-0 gpugrp1/0/gpugrp0/0 <none> 80 GiB <none> Unhealthy <none>")
	if err := f.client.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.want("n <none> <none> <none> <none> <none> Unreadable <none>")
}

func TestAWatchThatIsForbiddenEndsWithWhatIsMissing(t *testing.T) {
	f := newFixture()
	f.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	})
	for _, line := range []string{"nodes --watch", "pods --watch -A", "pods -A"} {
		_, stderr, status := f.run(t.Context(), line)
		if status != 1 || !strings.Contains(stderr, "Error from server (Forbidden)") ||
			!strings.Contains(stderr, "kubectl auth can-i") {
			t.Errorf("%s: exit status %d, and %q", line, status, stderr)
		}
	}
}
