// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// variables returns variables of that many bytes together.
func variables(size int) (env []string) {
	for i := 0; size > 0; i++ {
		name := fmt.Sprintf("V%d=", i)
		env = append(env, name+strings.Repeat("x", min(size, 1000)))
		size -= 1000 + len(name)
	}
	return env
}

// createNamed has the runtime create a container of that name.
func (f *fixture) createNamed(pod *api.PodSandbox, name string, env []string) (*api.Container, error) {
	f.number++
	c := &api.Container{
		Id: fmt.Sprintf("container-%d", f.number), PodSandboxId: pod.GetId(), Name: name, Env: env,
	}
	request := &api.CreateContainerRequest{Pod: pod, Container: c}
	if _, err := f.runtime.CreateContainer(f.t.Context(), request); err != nil {
		return nil, err
	}
	return c, f.runtime.PostCreateContainer(f.t.Context(), &api.PostCreateContainerRequest{Pod: pod, Container: c})
}

func TestAContainerThatIsTooLargeForNRIIsRefused(t *testing.T) {
	f := newFixture(t)
	f.start()
	for _, size := range []int{nribound.MaxContents + 1, 3 << 20} {
		_, err := f.create(f.pod("plain", ""), variables(size)...)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(nribound.MaxContents)) {
			t.Errorf("one with %d bytes of variables: %v", size, err)
		}
	}
	if _, err := f.create(f.pod("plain", ""), variables(nribound.MaxContents-10_000)...); err != nil {
		t.Error("one within the bound:", err)
	}
	// It is still there to be called.
	adjustment, err := f.create(f.pod("plain", ""), "NVIDIA_VISIBLE_DEVICES=all")
	if err != nil || len(adjustment.GetEnv()) == 0 {
		t.Errorf("another one: %v, %v", adjustment, err)
	}
}

func TestAnAnswerThatMakesAContainerTooLargeIsAnError(t *testing.T) {
	frontend := New(t.Context(), Options{})
	defer frontend.Close()
	sandbox := &api.PodSandbox{Id: "sandbox", Namespace: "default", Name: "pod"}
	c := &api.Container{Id: "c", PodSandboxId: "sandbox", Name: "main", Env: variables(nribound.MaxContents - 10_000)}
	adding := func(size int) *runtimeapi.ContainerConfig {
		return &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{
			Key: "DEVICES", Value: bytes.Repeat([]byte("x"), size),
		}}}
	}
	for _, size := range []int{100_000, nribound.Message + 1} {
		_, err := frontend.answer(sandbox, c, adding(size))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(nribound.MaxObject)) {
			t.Errorf("an answer of %d bytes: %v", size, err)
		}
	}
	adjustment, err := frontend.answer(sandbox, c, adding(20_000))
	if err != nil || len(adjustment.GetEnv()) != 1 {
		t.Errorf("an answer of 20,000 bytes: %v", err)
	}
}

func TestAdditionsToContainersCountInTheirPod(t *testing.T) {
	frontend := New(t.Context(), Options{})
	defer frontend.Close()
	sandbox := &api.PodSandbox{Id: "sandbox", Namespace: "default", Name: "pod"}
	added := &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{
		Key: "DEVICES", Value: bytes.Repeat([]byte("x"), nribound.MaxPod/5),
	}}}
	for i := range 6 {
		c := &api.Container{Id: fmt.Sprint("c", i), PodSandboxId: "sandbox", Name: fmt.Sprint("c", i)}
		_, err := frontend.answer(sandbox, c, added)
		if full := i >= 4; (err != nil) != full {
			t.Errorf("container %d, each with a fifth of what a pod may have: %v", i, err)
		}
	}
}

func TestAContainerCountsOnceInItsPodHoweverOftenItIsDecidedAbout(t *testing.T) {
	frontend := New(t.Context(), Options{})
	defer frontend.Close()
	sandbox := &api.PodSandbox{Id: "sandbox", Namespace: "default", Name: "pod"}
	c := &api.Container{Id: "c", PodSandboxId: "sandbox", Name: "main", Env: variables(nribound.MaxPod * 3 / 5)}
	for try := range 2 {
		if _, err := frontend.answer(sandbox, c, nil); err != nil {
			t.Errorf("try %d: %v", try+1, err)
		}
	}
	another := &api.Container{Id: "d", PodSandboxId: "sandbox", Name: "side", Env: c.GetEnv()}
	if _, err := frontend.answer(sandbox, another, nil); err == nil {
		t.Error("another one as large fits into its pod, too")
	}
}

func TestASandboxThatIsTooLargeForNRIIsRefused(t *testing.T) {
	f := newFixture(t)
	f.start()
	pod := f.pod("plain", "")
	pod.Labels = map[string]string{}
	for i := range 2000 {
		pod.Labels[fmt.Sprint("label-", i)] = strings.Repeat("x", 200)
	}
	err := f.runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod})
	if err == nil || !strings.Contains(err.Error(), "default/pod-plain") {
		t.Error(err)
	}
	if _, err := f.create(pod); err == nil {
		t.Error("a container of a sandbox that was made while kubecri was away is created")
	}
}

func TestThePodsContainersAreBoundedTogetherWhileTheyAreThere(t *testing.T) {
	for name, end := range map[string]func(*fixture, *api.PodSandbox, *api.Container) error{
		"until they have ended": func(f *fixture, pod *api.PodSandbox, c *api.Container) error {
			_, err := f.runtime.StopContainer(f.t.Context(), &api.StopContainerRequest{Pod: pod, Container: c})
			return err
		},
		"until they are removed": func(f *fixture, pod *api.PodSandbox, c *api.Container) error {
			return f.runtime.RemoveContainer(f.t.Context(), &api.RemoveContainerRequest{Pod: pod, Container: c})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.start()
			pod, quarter := f.pod("plain", ""), variables(nribound.MaxPod/4)
			var containers []*api.Container
			for i := range 3 {
				c, err := f.createNamed(pod, fmt.Sprint("c", i), quarter)
				if err != nil {
					t.Fatal(err)
				}
				containers = append(containers, c)
			}
			_, err := f.createNamed(pod, "c3", quarter)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint(nribound.MaxPod)) {
				t.Error("the fourth quarter, which leaves no room for the sandbox:", err)
			}
			other := f.pod("plain", "")
			other.Id = "another-sandbox"
			if _, err := f.createNamed(other, "main", quarter); err != nil {
				t.Error("a container of another pod:", err)
			}
			if err := end(f, pod, containers[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := f.createNamed(pod, "c3", quarter); err != nil {
				t.Error("after another one is gone:", err)
			}
		})
	}
}
