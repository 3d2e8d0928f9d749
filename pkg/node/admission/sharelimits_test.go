// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// limits are those of every container with card0.
type limits struct{ err error }

func (l limits) Limit(claim plugins.Claim) (inject.Addition, bool, error) {
	for _, name := range claim.Container.AllocateFrom {
		if name == card0 {
			return inject.Addition{Plugin: "limits", Allocation: device.Allocation{
				Envs:   map[string]string{"MEMORY_LIMIT": "1g"},
				Mounts: []device.HostMount{{HostPath: "/preload", ContainerPath: "/etc/ld.so.preload", Readonly: true}},
			}}, true, l.err
		}
	}
	return inject.Addition{}, false, nil
}

func TestContainersWithSharesGetTheirLimitsOverTheirOwn(t *testing.T) {
	own := &runtimeapi.KeyValue{Key: "MEMORY_LIMIT", Value: []byte("80g")}
	for what, test := range map[string]struct {
		device types.ResourceName
		mounts []*runtimeapi.Mount
		err    error
		want   string // of the variable, or in the error
	}{
		"a share":         {device: card0, want: "1g"},
		"another device":  {device: card1, want: "80g"},
		"no limit can be": {device: card0, err: errors.New("no library"), want: `container "main": no library`},
		"a file in its way": {
			device: card0, mounts: []*runtimeapi.Mount{{ContainerPath: "/etc/ld.so.preload", HostPath: "/empty"}},
			want: "mount of /preload at /etc/ld.so.preload: the pod has mount of /empty",
		},
	} {
		f := newFixture(t, true)
		f.waitForDevices(t, 2)
		f.ShareLimits = limits{test.err}
		f.pods["u"] = podThatRequests(gpu)
		config, err := f.createAs(t, "u", "api",
			allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {test.device}}),
			&runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Mounts: test.mounts,
				Envs: []*runtimeapi.KeyValue{own},
			})
		if err != nil {
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %s", what, err, test.want)
			}
			continue
		}
		last := slices.Backward(config.GetEnvs())
		for _, env := range last {
			if env.GetKey() == own.GetKey() {
				if string(env.GetValue()) != test.want {
					t.Errorf("%s: the last %s is %s, want %s", what, own.GetKey(), env.GetValue(), test.want)
				}
				break
			}
		}
	}
}

// NRI replaces the first variable of a name, and that by the second.
func TestLimitsAreSetLastWhereImageAndPodSetThem(t *testing.T) {
	values := func(all ...string) (envs []*runtimeapi.KeyValue) {
		for _, value := range all {
			envs = append(envs, &runtimeapi.KeyValue{Key: "MEMORY_LIMIT", Value: []byte(value)})
		}
		return envs
	}
	const last = "kubedevice.io/variables=MEMORY_LIMIT=1g"
	for what, test := range map[string]struct {
		envs            []*runtimeapi.KeyValue
		proxy, firewall bool
		want            string
	}{
		"twice":                        {envs: values("80g", "80g"), want: last},
		"twice, the firewall is on":    {envs: values("80g", "2g"), firewall: true, want: last},
		"once":                         {envs: values("80g")},
		"twice, and the last is right": {envs: values("80g", "1g")},
		"twice, with the proxy":        {envs: values("80g", "80g"), proxy: true},
	} {
		f := newFixture(t, true)
		f.waitForDevices(t, 2)
		f.withImage, f.ShareLimits = !test.proxy, limits{}
		if test.firewall {
			f.Firewall = f.wall
		}
		f.pods["u"] = podThatRequests(gpu)
		config, err := f.createAs(t, "u", "api",
			allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}}),
			&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Envs: test.envs})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		got := ""
		for _, device := range config.GetCDIDevices() {
			got += device.GetName()
		}
		if got != test.want {
			t.Errorf("%s: set last by %q, want %q", what, got, test.want)
		}
	}
}
