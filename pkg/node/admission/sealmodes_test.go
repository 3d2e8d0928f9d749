// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// sealSide is the node's or the scheduler's mode, and whether it has keys.
type sealSide struct {
	mode seal.Mode
	keys bool
}

func (s sealSide) String() string {
	if s.keys {
		return fmt.Sprintf("%s with keys", s.mode)
	}
	return fmt.Sprintf("%s without keys", s.mode)
}

// in reports whether the cell of a column covers this side: "any", or modes, with keys or without.
func (s sealSide) in(cell string) bool {
	modes, keys, _ := strings.Cut(cell, ";")
	switch keys {
	case "", " with keys":
		if keys != "" && !s.keys {
			return false
		}
	case " no keys":
		if s.keys {
			return false
		}
	}
	return modes == "any" || slices.Contains(strings.Split(modes, ", "), string(s.mode))
}

// Each combination of modes of a node and of the scheduler has the outcome for a device pod that
// the table of docs/use/seals.md says.
func TestEachCombinationOfSealModesHasTheDocumentedOutcome(t *testing.T) {
	rows := sealModeRows(t)
	used := map[int]bool{}
	var sides []sealSide
	for _, mode := range []seal.Mode{seal.Off, seal.Warn, seal.Enforce} {
		sides = append(sides, sealSide{mode, true}, sealSide{mode, false})
	}
	for _, node := range sides {
		for _, scheduler := range sides {
			t.Run(fmt.Sprintf("node %s, scheduler %s", node, scheduler), func(t *testing.T) {
				row := slices.IndexFunc(rows, func(row []string) bool {
					return node.in(row[0]) && scheduler.in(row[1])
				})
				if row < 0 {
					t.Fatal("no row has this combination")
				}
				used[row] = true
				if got, want := sealOutcome(t, node, scheduler), rows[row][2]; got != want {
					t.Errorf("%q, and the table says %q", got, want)
				}
			})
		}
	}
	for i, row := range rows {
		if !used[i] {
			t.Errorf("no combination needs the row %q", row)
		}
	}
}

// sealOutcome returns what becomes of a device pod. A scheduler seals it if it has keys.
func sealOutcome(t *testing.T, node, scheduler sealSide) string {
	t.Helper()
	if _, err := scheduler.mode.Resolve(scheduler.keys); err != nil {
		return "the scheduler does not start"
	}
	if _, err := node.mode.Resolve(node.keys); err != nil {
		return "kubecri does not start"
	}
	const uid = "u1"
	f := newFixture(t, true)
	f.pods[uid] = requesting
	_, warnings := f.withSeals(node.mode, nil)
	annotations := allocation(t, "pod-"+uid, "node-1", map[string][]types.ResourceName{"main": {card0}})
	if scheduler.keys {
		annotations = sealed(t, 1, uid, annotations, nil)
	}
	_, err := f.create(t, uid, "main", "api", annotations)
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return "is refused"
	case err != nil:
		t.Fatal(err)
	case len(*warnings) > 0:
		return "starts, with an event DevicesNotSealed"
	}
	return "starts"
}

// sealModeRows returns the first three cells of the table's rows, without quotes and emphasis.
func sealModeRows(t *testing.T) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/use/seals.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| node | scheduler | a device pod that the scheduler binds |")
	if !found {
		t.Fatal("docs/use/seals.md has no table of the modes of node and scheduler")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(strings.NewReplacer("`", "", "**", "").Replace(line), "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells[:3])
	}
	return rows
}
