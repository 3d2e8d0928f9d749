// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cdiCards are cards that are given by CDI.
type cdiCards struct{ cards }

func (c *cdiCards) AllocateContainer(*types.PodInfo, *types.ContainerInfo) (*device.Allocation, error) {
	return &device.Allocation{CDIDevices: []string{"example.com/gpu=0"}}, nil
}

func TestADeviceThatTheRuntimeWouldIgnoreIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		plugin device.Device
		cdi    error
		code   codes.Code
		says   string
	}{
		"CDI, and the runtime honours it": {plugin: &cdiCards{}},
		"CDI, and the runtime ignores it": {
			plugin: &cdiCards{}, cdi: errors.New("the runtime is too old"), code: codes.FailedPrecondition,
			says: `CDI device "example.com/gpu=0": the runtime is too old`,
		},
		"CDI, and the runtime was not asked yet": {
			plugin: &cdiCards{}, cdi: fmt.Errorf("%w: starting", cdi.ErrUnknown), code: codes.Unavailable,
			says: "not known yet: starting",
		},
		"a device node needs no CDI": {plugin: &cards{}, cdi: errors.New("the runtime is too old")},
	} {
		f := fixtureWith(t, test.plugin)
		f.cdiErr = test.cdi
		f.pods["u"] = requesting
		config, err := f.create(
			t,
			"u",
			"main",
			"api",
			allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}}),
		)
		if status.Code(err) != test.code || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, test.code, test.says)
		}
		if err == nil && len(config.GetCDIDevices())+len(config.GetDevices()) != 1 {
			t.Errorf("%s: the container has no device: %v", name, config)
		}
	}
}
