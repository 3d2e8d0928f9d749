// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAPluginThatHangsFailsOnlyItsOwnContainers(t *testing.T) {
	release := make(chan struct{})
	hanging := &fake{name: "hanging", update: offers("", card0),
		allocate: func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			<-release
			return nil, nil, nil, nil
		}}
	well := &fake{name: "well", update: offers("", card1),
		allocate: func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			return nil, []string{"/dev/x"}, nil, nil
		}}
	m := run(t, quick, nil, hanging, well)
	until(t, m, "complete", complete)
	_, err := m.Allocate(context.Background(), claim(card0))
	if err == nil || !strings.Contains(err.Error(), "no answer within 1s") {
		t.Errorf("hanging: %v", err)
	}
	_, err = m.Allocate(context.Background(), claim(card0))
	if err == nil || !strings.Contains(err.Error(), "an earlier call of Allocate has not returned") {
		t.Errorf("still hanging: %v", err)
	}
	if additions, err := m.Allocate(context.Background(), claim(card1)); err != nil || len(additions) != 1 {
		t.Errorf("the other plugin: %v, %v", additions, err)
	}
	close(release)
	for {
		if _, err := m.Allocate(context.Background(), claim(card0)); err == nil {
			break
		}
	}
}

func TestAPanicInAllocateIsAnError(t *testing.T) {
	m := run(t, quick, nil, &fake{name: "a", update: offers("", card0),
		allocate: func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			panic("index out of range")
		}})
	until(t, m, "complete", complete)
	_, err := m.Allocate(context.Background(), claim(card0))
	if err == nil || !strings.Contains(err.Error(), `device plugin "a": Allocate: panic: index out of range`) {
		t.Errorf("got %v", err)
	}
}

func TestAllocateGetsCopies(t *testing.T) {
	m := run(t, quick, nil, &fake{name: "a", update: offers("", card0), allocate: func(pod *types.PodInfo,
		c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
		clear(pod.RunningContainers)
		clear(c.AllocateFrom)
		c.DevRequests["written"] = 1
		return nil, nil, nil, nil
	}})
	until(t, m, "complete", complete)
	pod, c := types.NewPodInfo(), container(card0)
	pod.RunningContainers["main"] = *c
	if _, err := m.Allocate(context.Background(), Claim{Pod: pod, Container: c}); err != nil {
		t.Fatal(err)
	}
	if len(pod.RunningContainers) != 1 || len(c.AllocateFrom) != 1 || len(c.DevRequests) != 0 {
		t.Errorf("the plugin changed its caller's data: %v, %v", pod, c)
	}
}

func TestCallsAreOneAtATimeUnlessThePluginIsSafe(t *testing.T) {
	for name, test := range map[string]struct{ concurrent bool }{"serialised": {false}, "concurrent": {true}} {
		t.Run(name, func(t *testing.T) {
			const callers = 4
			inside, all := make(chan struct{}, callers), make(chan struct{})
			var arrived sync.WaitGroup
			arrived.Add(callers)
			go func() { arrived.Wait(); close(all) }()
			f := &fake{name: "a", concurrent: test.concurrent, update: offers("", card0)}
			f.allocate = func(*types.PodInfo,
				*types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
				if !test.concurrent {
					inside <- struct{}{}
					defer func() { <-inside }()
					arrived.Done()
					if len(inside) > 1 {
						return nil, nil, nil, errors.New("two calls inside")
					}
					return nil, nil, nil, nil
				}
				arrived.Done()
				<-all
				return nil, nil, nil, nil
			}
			m := run(t, quick, nil, f)
			until(t, m, "complete", complete)
			var calling sync.WaitGroup
			for range callers {
				calling.Go(func() {
					if _, err := m.Allocate(context.Background(), claim(card0)); err != nil {
						t.Error(err)
					}
				})
			}
			calling.Wait()
		})
	}
}
