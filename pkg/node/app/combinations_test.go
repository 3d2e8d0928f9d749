// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// The table of docs/reference/kubecri-config.md has one row for each combination of these settings,
// and says what holds there.
func TestTableOfCombinationsSaysWhatHolds(t *testing.T) {
	columns := [][]string{
		{"cri", "nri"}, {"keys", "none"}, {"off", "warn", "enforce"}, {"on", "off"}, {"Ignore", "Evict", "Replace"},
	}
	rows := combinationRows(t)
	var walk func(cell []string)
	walk = func(cell []string) {
		if len(cell) < len(columns) {
			for _, value := range columns[len(cell)] {
				walk(append(slices.Clone(cell), value))
			}
			return
		}
		var said []string
		for _, row := range rows {
			covers := true
			for i, value := range cell {
				covers = covers && (row[i] == "any" || slices.Contains(strings.Split(row[i], ", "), value))
			}
			if covers {
				said = append(said, row[len(cell)])
			}
		}
		if want := holds(t, cell); len(said) != 1 || said[0] != want {
			t.Errorf("%v: the table says %q, and %q holds", cell, said, want)
		}
	}
	walk(nil)
}

// combinationRows returns the cells of the table, without quotes.
func combinationRows(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/kubecri-config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| `mode` | keys | `sealMode` |")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows [][]string
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, "`", ""), "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// holds returns what kubecri does with a combination.
func holds(t *testing.T, cell []string) string {
	t.Helper()
	args := []string{
		"--hostname-override=n", "--mode=" + cell[0], "--seal-mode=" + cell[2], "--device-firewall=" + cell[3],
		"--on-device-failure=" + cell[4],
	}
	if cell[1] == "keys" {
		args = append(args, "--seal-certificates="+filepath.Join(t.TempDir(), "certificates.pem"))
	}
	options, err := parse(args...)
	if err != nil {
		if !strings.Contains(err.Error(), "there are no keys") {
			t.Errorf("%v: %v", cell, err)
		}
		return "refused at the start"
	}
	if on := cell[3] == "on"; options.DeviceFirewall != on {
		t.Errorf("%v: the device firewall is on: %v", cell, options.DeviceFirewall)
	}
	mode, err := options.sealMode()
	if err != nil || mode != seal.Mode(cell[2]) {
		t.Errorf("%v: seal mode %q, %v", cell, mode, err)
	}
	if why := notReplaced(options.Mode, mode); options.OnDeviceFailure == devicehealth.Replace && why != "" {
		return string(devicehealth.Evict) + ": " + why
	}
	return string(options.OnDeviceFailure)
}
