// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestDevicesAreFoundUnderTheirCurrentNames(t *testing.T) {
	const card0, card1 = "resource/group/gpu/0/cards", "resource/group/gpu/1/cards"
	const lifted = "resource/group/switch/0/gpu/0/cards" // by a device scheduler that groups every device
	const twin0, twin1 = "resource/group/board/0/fpga/0/slots", "resource/group/board/1/fpga/0/slots"
	names := []types.ResourceName{card0, card1, twin0, twin1}
	for name, want := range map[types.ResourceName]types.ResourceName{
		lifted:                                  card0,
		"resource/group/gpu/9/cards":            "resource/group/gpu/9/cards",
		"resource/group/gpu/0/memory":           "resource/group/gpu/0/memory",
		"resource/group/board/2/fpga/0/slots":   "resource/group/board/2/fpga/0/slots", // one of two
		"resource/group/switch/0/fpga/0/slots/": "resource/group/switch/0/fpga/0/slots/",
	} {
		if diff := cmp.Diff(want, CurrentName(slices.Values(names), name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
