// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// A pod may have the key of kubecri's own annotation: its value there is not the container's.
func TestAContainerKeepsItsAnnotationsUnlessItHasThemFromItsPod(t *testing.T) {
	type annotations = map[string]string
	const key = grants.Annotation
	sandbox := &api.PodSandbox{Annotations: annotations{key: "of the pod"}}
	for name, test := range map[string]struct{ has, want annotations }{
		"another key":               {annotations{"own": "1"}, annotations{"own": "1"}},
		"the pod's key and value":   {annotations{key: "of the pod"}, annotations{}},
		"another value for the key": {annotations{key: "own"}, annotations{key: "own"}},
	} {
		got := containerOf(sandbox, &api.Container{Annotations: test.has}).Config.GetAnnotations()
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A privileged container has all devices: the firewall refuses it none.
func TestOnlyAContainerThatMayUseAllDevicesCountsAsPrivileged(t *testing.T) {
	all := api.Int64(int64(-1))
	type rule = api.LinuxDeviceCgroup
	for name, test := range map[string]struct {
		rule *rule
		want bool
	}{
		"all":                      {&rule{Allow: true, Access: "rwm"}, true},
		"all, by name":             {&rule{Allow: true, Type: "a", Access: "rwm"}, true},
		"all, by number":           {&rule{Allow: true, Major: all, Minor: all, Access: "rw"}, true},
		"no device":                {&rule{Access: "rwm"}, false},
		"all, only to write":       {&rule{Allow: true, Access: "wm"}, false},
		"all, only to read":        {&rule{Allow: true, Access: "rm"}, false},
		"all, only to make":        {&rule{Allow: true, Access: "m"}, false},
		"all character devices":    {&rule{Allow: true, Type: "c", Access: "rwm"}, false},
		"all of one major number":  {&rule{Allow: true, Major: api.Int64(int64(195)), Access: "rwm"}, false},
		"one minor number of each": {&rule{Allow: true, Minor: api.Int64(int64(0)), Access: "rwm"}, false},
	} {
		c := &api.Container{Linux: &api.LinuxContainer{
			Resources: &api.LinuxResources{Devices: []*rule{{Access: "rwm"}, test.rule}},
		}}
		got := containerOf(&api.PodSandbox{}, c).Config.GetLinux().GetSecurityContext().GetPrivileged()
		if got != test.want {
			t.Errorf("%s: privileged is %t", name, got)
		}
	}
}
