// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// large adds n containers of that many bytes of variables to what the runtime has when it starts.
func (f *fixture) large(n, size int, created int64, env ...string) {
	f.sandbox = append(f.sandbox, f.pod("plain", ""))
	for range n {
		f.number++
		f.running = append(f.running, &api.Container{
			Id: fmt.Sprintf("large-%d", f.number), PodSandboxId: "sandbox-plain", Name: "main",
			CreatedAt: created * 1e9, Env: append(variables(size), env...),
		})
	}
}

func TestContainersForWhichTheListCannotBeSentAreEndedBeforeTheRegistration(t *testing.T) {
	f := newFixture(t)
	f.large(7, 600<<10, installed+1)
	f.large(1, 600<<10, installed+1, "NVIDIA_VISIBLE_DEVICES=all")
	past := fmt.Sprintf("large-%d", f.number)
	f.end = func(id string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running = slices.DeleteFunc(f.running, func(c *api.Container) bool { return c.GetId() == id })
		return nil
	}
	f.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	// Six of 600 KiB fit into one message.
	if len(f.ended) != 2 || f.ended[0] != past {
		t.Errorf("%v are ended, want first %s and then one more", f.ended, past)
	}
	if said := strings.Join(f.warnings, "\n"); !strings.Contains(said, "NVIDIA_VISIBLE_DEVICES=all") ||
		!strings.Contains(said, "takes 6") {
		t.Errorf("the owners hear %s", said)
	}
}

func TestContainersThatAreOlderThanKubecriStayAndItIsNotConnected(t *testing.T) {
	f := newFixture(t)
	f.large(8, 600<<10, installed-1)
	f.sandbox = f.sandbox[:0] // those would be ended
	err := f.front.Prepare(t.Context())
	text := fmt.Sprint(err)
	if !strings.Contains(text, "does not split") || !strings.Contains(text, `container "main"`) {
		t.Error(err)
	}
	if len(f.ended) > 0 {
		t.Errorf("%v are ended", f.ended)
	}
}

func TestTheLargestPodsAreEndedWhereTheirSandboxesAreTheReason(t *testing.T) {
	f := newFixture(t)
	for i := range 60 {
		pod := f.pod(fmt.Sprint("pod", i), "")
		pod.Annotations["large"] = strings.Repeat("x", 150_000+i)
		f.sandbox = append(f.sandbox, pod)
	}
	f.running = append(f.running, &api.Container{Id: "system", PodSandboxId: "sandbox-pod0", Name: "main"})
	if err := f.front.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.ended) == 0 || len(f.ended) > 40 || f.ended[0] != "sandbox-pod59" {
		t.Errorf("%v are ended", f.ended)
	}
}

func TestAContainerThatCannotBeEndedKeepsKubecriAway(t *testing.T) {
	f := newFixture(t)
	f.large(8, 600<<10, installed+1)
	f.sandbox = f.sandbox[:0]
	f.end = func(string) error { return errors.New("it hangs") }
	if err := f.front.Prepare(t.Context()); err == nil {
		t.Error("it is connected")
	}
}
