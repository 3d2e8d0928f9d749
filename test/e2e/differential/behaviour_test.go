// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// kubelet and kubecri are the hosts of plugins.
const kubelet, kubecri = "kubelet", "kubecri"

// behaviour is one behaviour of a plugin, and what comes of it: a file of the archives in testdata.
// Its first line is a comment that says what the plugin does. Each further line is a command, to
// the plugin or to the test; see side.do. What stands behind => is what the command must say.
//
// A line that begins with [kubelet] or [kubecri] is for that host alone: there they differ. The
// line "because TEXT" has the part of a sentence of docs/vendors/device-plugins.md that says why.
type behaviour struct {
	// name is what the plugin does, and row the short form of it, for names.
	name, row string
	steps     []step
	reason    string
}

// step is a line of a behaviour.
type step struct {
	line    int
	only    string // the host that it is for, or ""
	command string
	want    string
	checked bool // whether want counts
}

// readBehaviours reads all behaviours.
func readBehaviours(t *testing.T) []behaviour {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var all []behaviour
	for _, path := range archives {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range txtar.Parse(content).Files {
			b, err := parseBehaviour(file.Name, string(file.Data))
			if err != nil {
				t.Fatalf("%s: %s: %v", path, file.Name, err)
			}
			all = append(all, b)
		}
	}
	return all
}

func parseBehaviour(row, text string) (behaviour, error) {
	b := behaviour{row: row}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		s := step{line: i + 1, command: line}
		switch {
		case i == 0:
			name, isName := strings.CutPrefix(line, "# ")
			if !isName {
				return b, fmt.Errorf("line 1 does not say what the plugin does")
			}
			b.name = name
			continue
		case strings.HasPrefix(line, "because "):
			b.reason = strings.TrimPrefix(line, "because ")
			continue
		case strings.HasPrefix(line, "["):
			host, command, found := strings.Cut(line[1:], "] ")
			if !found || host != kubelet && host != kubecri {
				return b, fmt.Errorf("line %d is for no host", i+1)
			}
			s.only, s.command = host, command
		}
		if at := strings.LastIndex(s.command, " => "); at >= 0 {
			s.command, s.want, s.checked = s.command[:at], s.command[at+len(" => "):], true
		}
		b.steps = append(b.steps, s)
	}
	return b, nil
}

// differs reports whether the outcome depends on the host.
func (b behaviour) differs() bool {
	return slices.ContainsFunc(b.steps, func(s step) bool { return s.only != "" })
}

// checks returns how many lines check something at the host.
func (b behaviour) checks(host string) int {
	count := 0
	for _, s := range b.steps {
		verb, _, _ := strings.Cut(s.command, " ")
		if (s.only == "" || s.only == host) && (s.checked || verb == "offered" || verb == "stays") {
			count++
		}
	}
	return count
}
