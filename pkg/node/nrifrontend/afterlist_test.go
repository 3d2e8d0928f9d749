// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// The runtime creates no container between its own list and the registration: containerd's
// CreateContainer and NRI's synchronization exclude each other (BlockPluginSync).
func TestAContainerThatIsCreatedAfterTheListWasReadIsInspected(t *testing.T) {
	f := newFixture(t)
	f.plugin.answers()
	plain := f.pod("plain", "")
	f.mu.Lock()
	f.sandbox = append(f.sandbox, plain)
	f.unlisted = []*api.Container{{
		Id: "past", PodSandboxId: plain.GetId(), Name: "main", CreatedAt: (installed + 1) * 1e9,
		State: api.ContainerState_CONTAINER_RUNNING, Env: []string{"NVIDIA_VISIBLE_DEVICES=all"},
	}}
	f.mu.Unlock()
	f.start()
	await(t, "the container is ended", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Equal(f.ended, []string{"past"})
	})
}

func TestContainersThatMakeTheListTooLargeAfterItWasReadAreEndedBeforeTheNextConnection(t *testing.T) {
	f := newFixture(t)
	f.mu.Lock()
	f.sandbox = append(f.sandbox, &api.PodSandbox{Id: "sandbox-plain", Uid: "plain", Name: "pod-plain"})
	f.unlisted = large(7, 600<<10, installed+1)
	f.end = func(id string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running = slices.DeleteFunc(f.running, func(c *api.Container) bool { return c.GetId() == id })
		return nil
	}
	f.mu.Unlock()
	f.serve()
	await(t, "kubecri is registered", f.registration.Registered)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ended) != 1 || len(f.running) != 6 {
		t.Errorf("%v are ended; want one of seven, as six fit into a message", f.ended)
	}
}
