// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// A node chooses what it lists. One of them delays no user who looks at all nodes.
func TestTopIsQuickAlsoWithANodeThatListsAsManyKindsAsItCan(t *testing.T) {
	const kinds = 4000
	info := types.NewNodeInfo()
	for i := range kinds {
		for _, list := range []types.ResourceList{info.Capacity, info.Allocatable} {
			types.AddGroupResource(list, fmt.Sprintf("k%d/d/r", i), 1)
		}
	}
	f := newFixture(newNode(t, "hostile", info), newNode(t, "node-1", gpus(8)))

	begin := time.Now()
	stdout, stderr, status := f.run(t.Context(), "top")
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}

	if lines := strings.Count(stdout, "\nhostile "); status != 0 || lines != kinds ||
		!strings.Contains(stdout, "\nnode-1 ") {
		t.Errorf("exit status %d, %d lines for the node, want %d; %s", status, lines, kinds, stderr)
	}
}
