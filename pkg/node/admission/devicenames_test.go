// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// lifted is card0 as a device scheduler names it that puts every device into a group.
const lifted = "resource/group/switch/0/gpu/0/cards"

func TestADeviceIsKnownWhateverGroupsTheSchedulerPutsItInto(t *testing.T) {
	f := newFixture(t, true)
	f.pods["a"], f.pods["b"] = requesting, requesting
	config, err := f.create(
		t,
		"a",
		"main",
		"api",
		allocation(t, "pod-a", "node-1", map[string][]types.ResourceName{"main": {lifted}}),
	)
	if err != nil || len(config.GetDevices()) != 1 || config.Devices[0].HostPath != "/dev/gpu0" {
		t.Errorf("the device under another name: %v, %v", config, err)
	}
	_, err = f.create(
		t,
		"b",
		"main",
		"api",
		allocation(t, "pod-b", "node-1", map[string][]types.ResourceName{"main": {card0}}),
	)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "default/pod-a") {
		t.Errorf("the same device under its own name, for a second pod: %v", err)
	}
}

func TestADeviceUnderTwoNamesIsOneDevice(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = requesting
	_, err := f.create(
		t,
		"u",
		"main",
		"api",
		allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0, lifted}}),
	)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "the node has 1") {
		t.Errorf("got %v", err)
	}
}
