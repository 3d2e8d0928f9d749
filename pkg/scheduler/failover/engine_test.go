// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// replacement is a node's request for the containers of a pod at a generation.
func replacement(pod string, generation int64, containers ...string) deviceinfo.Replacement {
	return deviceinfo.Replacement{UID: types.UID(pod), Generation: generation, Containers: containers}
}

func TestContainerGetsAnotherDeviceOfItsNode(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A", "log": "B"})
	f.holder("other", 0, map[string]string{"main": "C"})
	f.breaks("A", replacement("p", 0, "main"))
	f.sync()
	f.want("container main", f.has("p", "main"), "D, generation 1")
	f.want("container log", f.has("p", "log"), "B, generation 1")
	f.want("the other pod", f.has("other", "main"), "C, generation 0")
	f.want("free before the informer has seen it", f.free(), "")
	f.sync()
	f.want("and not again", f.has("p", "main"), "D, generation 1")
	f.want("free then", f.free(), "")
	f.seen()
	f.want("free when the informer has seen it", f.free(), "")
	f.sync()
	f.want("and not again then", f.has("p", "main"), "D, generation 1")

	// It fails as well, and A is healthy again.
	delete(f.unhealthy, "A")
	f.breaks("D", replacement("p", 1, "main"))
	f.sync()
	f.want("the second time", f.has("p", "main"), "A, generation 2")
	f.seen()
	f.node()
	f.engine.release("n", time.Now().Add(keepReserved))
	delete(f.unhealthy, "D")
	f.node()
	f.want("free in the end", f.free(), "D")
	f.pods = nil
	f.want("free when the pods are gone", f.free(), "A B C D")
}

func TestAnswerHasAGenerationNewToTheNode(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A"}) // another client has restored an older allocation
	f.breaks("A", replacement("p", 3, "main"))
	f.sync()
	if got := f.has("p", "main"); !strings.HasSuffix(got, ", generation 4") {
		t.Errorf("the container has %q", got)
	}
}

func TestReservesOnlyNewDevices(t *testing.T) {
	list := func(gpus ...string) sdk.ContainerInfo {
		info := sdk.ContainerInfo{DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{}}
		for _, gpu := range gpus {
			info.DevRequests[cards(gpu)], info.AllocateFrom[cards(gpu)] = 1, cards(gpu)
		}
		return info
	}
	if diff := cmp.Diff(list("B"), addedDevices(list("A", "C"), list("A", "B"))); diff != "" {
		t.Errorf("reserved (-want +got):\n%s", diff)
	}
}

// A pod whose annotations have no space for another allocation gets an event, and no retry at once.
func TestDoesNotWriteTooLargeAllocations(t *testing.T) {
	f := newFixture(t)
	pod := f.holder("p", 0, map[string]string{"main": "A"})
	pod.Annotations["large"] = strings.Repeat("x", 256<<10)
	f.breaks("A", replacement("p", 0, "main"))
	if again := f.engine.sync(t.Context(), "n"); again != retryInterval {
		t.Errorf("it is tried again after %v", again)
	}
	select {
	case event := <-f.events.Events:
		if !strings.Contains(event, "bytes") {
			t.Errorf("the event says %q", event)
		}
	default:
		t.Error("there is no event")
	}
	f.want("the container", f.has("p", "main"), "A, generation 0")
	f.want("free", f.free(), "B C D")
}

func TestKeepsHealthyDevicesWherePossible(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A D"})
	f.breaks("D", replacement("p", 0, "main"))
	f.sync()
	if got := f.has("p", "main"); !strings.HasPrefix(got, "A ") || !strings.HasSuffix(got, ", generation 1") {
		t.Errorf("the container has %q, and not A and another one", got)
	}
}

func TestReplacesDevicesOfOneContainerAtATime(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A", "log": "B"})
	f.unhealthy["A"] = true
	f.breaks("B", replacement("p", 0, "log", "main"))
	f.sync()
	f.want("container main", f.has("p", "main"), "A, generation 1")
	if got := f.has("p", "log"); got != "C, generation 1" && got != "D, generation 1" {
		t.Errorf("container log has %q", got)
	}
}

func TestRequestsWithoutAReplacement(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*fixture)
		event   string
	}{
		"a node's request while another scheduler leads": {prepare: func(f *fixture) { f.leads = false }},
		"a request for a pod of another node": {prepare: func(f *fixture) {
			f.pods[0].Spec.NodeName = "elsewhere"
		}},
		"a pod that is being deleted": {prepare: func(f *fixture) {
			now := metav1.Now()
			f.pods[0].DeletionTimestamp = &now
		}},
		"a pod without a seal": {func(f *fixture) { delete(f.pods[0].Annotations, seal.Annotation) }, "no seal"},
		"a pod whose allocation was changed": {func(f *fixture) {
			f.pods[0].Annotations[deviceinfo.Annotation] = strings.ReplaceAll(
				f.pods[0].Annotations[deviceinfo.Annotation], "gpu/A", "gpu/B")
		}, "another allocation"},
		"a container that is not there": {func(f *fixture) { f.node(replacement("p", 0, "gone")) }, "has no devices"},
		"a node without a device that is free": {func(f *fixture) {
			f.holder("q", 0, map[string]string{"main": "B C D"})
		}, "no other device of node"},
		"a node without requests": {prepare: func(f *fixture) { f.node() }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.holder("p", 0, map[string]string{"main": "A"})
			f.breaks("A", replacement("p", 0, "main"))
			test.prepare(f)
			event := f.sync()
			f.want("the container", f.has("p", "main"), "A, generation 0")
			if !strings.Contains(event, test.event) || (event == "") != (test.event == "") {
				t.Errorf("the event says %q, want %q", event, test.event)
			}
			if again := f.sync(); again != "" {
				t.Errorf("the event is repeated: %q", again)
			}
		})
	}
}

func TestKeepsAnAnswerTheNodeHasNotReadYet(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 1, map[string]string{"main": "B"})
	f.breaks("A", replacement("p", 0, "main"))
	f.sync()
	f.want("the container", f.has("p", "main"), "B, generation 1")
}

func TestAllocatesADeviceThatBecomesFree(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A"})
	f.holder("q", 0, map[string]string{"main": "B C D"})
	f.breaks("A", replacement("p", 0, "main"))
	if f.sync() == "" || f.engine.sync(t.Context(), "n") > retryInterval {
		t.Error("it is not tried again soon")
	}
	f.pods = f.pods[:1]
	f.sync()
	if got := f.has("p", "main"); strings.HasPrefix(got, "A") {
		t.Errorf("the container has %q", got)
	}
}

func TestDoesNotAllocateRefusedDevicesAgain(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 3, map[string]string{"main": "D"}) // which the node cannot use
	refused := replacement("p", 3, "main")
	refused.Refused = true
	f.breaks("A", refused)
	f.sync()
	if got := f.has("p", "main"); got != "B, generation 4" && got != "C, generation 4" {
		t.Errorf("the container has %q", got)
	}
}

// The API server does not answer the patch. The engine finds out whether it took effect.
func TestResolvesAPatchWithoutAnAnswer(t *testing.T) {
	gone := errors.New("the connection is lost")
	t.Run("took effect", func(t *testing.T) {
		f := newFixture(t)
		f.holder("p", 0, map[string]string{"main": "A"})
		f.breaks("A", replacement("p", 0, "main"))
		f.lose = func(applied func()) error { applied(); return gone }
		f.sync()
		f.want("the container", f.has("p", "main")[2:], " generation 1")
		got := f.has("p", "main")
		if free := f.free(); strings.Contains(free, got[:1]) {
			t.Errorf("%s are free, and the container has %s", free, got)
		}
		f.sync()
		f.want("and later", f.has("p", "main"), got)
	})
	t.Run("may take effect still", func(t *testing.T) {
		f := newFixture(t)
		f.holder("p", 0, map[string]string{"main": "A"})
		f.breaks("A", replacement("p", 0, "main"))
		tries := 0
		var lose func(func()) error
		lose = func(applied func()) error {
			if tries++; tries == 3 {
				applied()
			} else {
				f.lose = lose
			}
			return gone
		}
		f.lose = lose
		f.sync()
		got := f.has("p", "main")
		if free := f.free(); !strings.HasSuffix(got, " generation 1") || strings.Contains(free, got[:1]) {
			t.Errorf("%s are free, and the container has %s", free, got)
		}
	})
	t.Run("did not", func(t *testing.T) {
		f := newFixture(t)
		f.holder("p", 0, map[string]string{"main": "A"})
		f.breaks("A", replacement("p", 0, "main"))
		f.lose = func(func()) error { return gone }
		f.sync()
		if got := f.has("p", "main"); strings.HasPrefix(got, "A") {
			t.Errorf("it is not tried again: %q", got)
		}
	})
}

func TestRetriesAfterAConflict(t *testing.T) {
	f := newFixture(t)
	pod := f.holder("p", 0, map[string]string{"main": "A"})
	f.breaks("A", replacement("p", 0, "main"))
	pod.ResourceVersion = "0" // the informer is behind
	if again := f.engine.sync(t.Context(), "n"); again != conflictBackoff {
		t.Errorf("it is tried again after %v", again)
	}
	f.want("the container", f.has("p", "main"), "A, generation 0")
	f.want("free", f.free(), "B C D")
	f.seen()
	f.sync()
	if got := f.has("p", "main"); strings.HasPrefix(got, "A") {
		t.Errorf("the container has %q", got)
	}
}

// growing are the pods of a node to which pods are bound while the engine answers it.
type growing struct {
	before, now []*v1.Pod
	lists       int
}

// PodsOn implements Pods.
func (g *growing) PodsOn(string) ([]*v1.Pod, error) {
	if g.lists++; g.lists <= 2 { // for expired reservations, and for the node's request
		return g.before, nil
	}
	return g.now, nil
}

// Pods are bound while the engine answers a node. Their reservations become their devices.
func TestPodBoundDuringTheAnswerKeepsItsDevices(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A"})
	f.holder("q", 0, map[string]string{"main": "B"})
	f.breaks("A", replacement("p", 0, "main"))
	late := f.holder("late", 0, map[string]string{"main": "C D"})
	lists := &growing{before: f.pods[:2], now: f.pods}
	f.engine.Pods = lists
	f.engine.sync(t.Context(), "n")
	f.want("the container", f.has("p", "main"), "A, generation 0")
	if lists.lists < 3 {
		t.Errorf("pods such as %s are listed %d times", late.Name, lists.lists)
	}
}

// The pods in the informer may be older than those that the node has seen.
func TestWaitsForTheInformerBeforeItChoosesOrReleases(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A"})
	f.breaks("A", replacement("p", 0, "main"))
	f.sync()
	devices := f.has("p", "main")
	f.breaks(devices[:1], replacement("p", 1, "main")) // the node has the answer already, and it fails, too
	f.sync()
	f.want("the container", f.has("p", "main"), devices)
	delete(f.unhealthy, devices[:1])
	f.node()
	f.engine.release("n", time.Now().Add(time.Hour))
	if free := f.free(); strings.Contains(free, devices[:1]) {
		t.Errorf("%s are free, and the container has %s", free, devices)
	}
	f.seen()
	f.engine.release("n", time.Now().Add(time.Hour))
	if len(f.engine.reservations) > 0 {
		t.Error("the reservation does not end")
	}
}

func TestReportsAForbiddenPatchAndBacksOff(t *testing.T) {
	f := newFixture(t)
	f.holder("p", 0, map[string]string{"main": "A"})
	f.breaks("A", replacement("p", 0, "main"))
	f.lose = func(func()) error { return apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("a policy")) }
	if again := f.engine.sync(t.Context(), "n"); again != retryInterval {
		t.Errorf("it is tried again after %v", again)
	}
	if event := <-f.events.Events; !strings.Contains(event, "may not write the pod's allocation") {
		t.Errorf("the event says %q", event)
	}
	if len(f.engine.reservations) > 0 {
		t.Error("devices stay reserved")
	}
}
