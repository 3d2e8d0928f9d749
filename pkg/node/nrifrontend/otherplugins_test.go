// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// other is another NRI plugin, which adjusts each container in its way.
type other struct {
	adjust func(*api.ContainerAdjustment)
	called atomic.Bool
}

// CreateContainer implements stub.CreateContainerInterface.
func (o *other) CreateContainer(
	context.Context, *api.PodSandbox, *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	o.called.Store(true)
	a := &api.ContainerAdjustment{}
	o.adjust(a)
	return a, nil, nil
}

// register registers another plugin with the runtime, which comes before kubecri, or after it, and
// waits until the runtime calls it.
func (f *fixture) register(index string, adjust func(*api.ContainerAdjustment)) {
	f.t.Helper()
	o := &other{adjust: adjust}
	plugin, err := stub.New(o, stub.WithPluginName("other"), stub.WithPluginIdx(index),
		stub.WithSocketPath(f.socket))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := plugin.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		plugin.Stop()
		plugin.Wait()
	})
	await(f.t, "the runtime calls the other plugin", func() bool {
		_, _ = f.create(f.pod("plain", "")) // it may be refused already
		return o.called.Load()
	})
}

func TestConflictsWithOtherNRIPluginsAreNamed(t *testing.T) {
	null := func(a *api.ContainerAdjustment) {
		a.AddDevice(&api.LinuxDevice{Path: "/dev/null", Type: "c", Major: 1, Minor: 3})
	}
	visible := func(a *api.ContainerAdjustment) { a.AddEnv("NVIDIA_VISIBLE_DEVICES", "all") }
	for name, test := range map[string]struct {
		adjust func(*api.ContainerAdjustment)
		card   string // of the pod's container
		says   string
	}{
		"a variable of the device plugin": {
			func(a *api.ContainerAdjustment) { a.AddEnv("CARDS", "all") }, card0, "CARDS",
		},
		"a device":                               {null, card0, "/dev/null"},
		"a device of a container that has none":  {null, "", ""},
		"a variable that requests devices":       {visible, card0, "NVIDIA_VISIBLE_DEVICES"},
		"the same in a container that has none":  {visible, "", "NVIDIA_VISIBLE_DEVICES"},
		"something that is none of its business": {func(a *api.ContainerAdjustment) { a.AddEnv("X", "1") }, card0, ""},
	} {
		for order, index := range map[string]string{"before kubecri": "10", "after it": "90"} {
			t.Run(name+", "+order, func(t *testing.T) {
				f := newFixture(t)
				f.plugin.answers()
				f.start()
				f.register(index, test.adjust)
				uid := "plain"
				if test.card != "" {
					uid = "first"
				}
				adjustment, err := f.create(f.pod(uid, test.card))
				if test.says == "" {
					if err != nil || test.card != "" && len(devicesIn(adjustment)) == 0 {
						t.Errorf("it gets %v, %v", adjustment, err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Fatalf("it gets %v, %v; want an error that names %s", adjustment, err, test.says)
				}
				// Kubecri itself refuses a device that is there already with other permissions.
				byRuntime := strings.Contains(err.Error(), "other") && strings.Contains(err.Error(), "kubedevice")
				if !byRuntime && !strings.Contains(err.Error(), "kubecri: ") {
					t.Errorf("the refusal does not say between whom: %v", err)
				}
			})
		}
	}
}
