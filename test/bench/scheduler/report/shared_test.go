// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

func TestTheTableOfSharedNodesHasTheParts(t *testing.T) {
	shared := &Shared{Nodes: 100, PodsOfNode: 8, Rate: 50, Seconds: 20, Periods: []SharedPeriod{
		{Fill: 0.5, Seconds: 20, Admitted: [2]int{500, 500}},
		{Fill: 1, Seconds: 20, Admitted: [2]int{450, 400}, Lost: [2]int{50, 100}},
		{Fill: 1, Seconds: 20, Alone: true},
	}}
	var table strings.Builder
	if err := shared.Print(&table); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range strings.Split(table.String(), "\n")[2:] {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"50 % 50.0 0 of 500 (0.00 %) 0 of 500 (0.00 %)",
		"full, pods wait 50.0 50 of 500 (10.00 %) 100 of 500 (20.00 %)",
		"full, one scheduler 0.0 0 of 0 (0.00 %) 0 of 0 (0.00 %)",
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("there is no line %q: %q", want, got)
		}
	}
}
