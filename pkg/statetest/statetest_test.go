// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package statetest

import (
	"os"
	"path/filepath"
	"testing"
)

// light is a state with a name of two words.
type light int

func (l light) String() string { return [...]string{"red", "red amber", "green"}[l] }

const source = `package road

// light is a traffic light, which goes
//
//	Red       a car waits   -> RedAmber
//	RedAmber  a second has passed -> Green
//
// Green -> Red is a sentence, not a transition.
type light int
`

func sourceFile(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "road.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOnlyDocumentedTransitionsAreAllowed(t *testing.T) {
	documented := Read(t, sourceFile(t))
	for _, test := range []struct {
		from, to light
		want     bool
	}{{0, 1, true}, {1, 2, true}, {2, 2, true}, {1, 0, false}, {2, 0, false}, {0, 2, false}} {
		if got := documented.Allow(test.from, test.to); got != test.want {
			t.Errorf("from %v to %v: allowed %v, want %v", test.from, test.to, got, test.want)
		}
	}
}

func TestWalksCoverTheComment(t *testing.T) {
	Walk(t, sourceFile(t), map[string][]light{
		"Red a car waits -> RedAmber":           {0, 0, 1},
		"RedAmber a second has passed -> Green": {0, 1, 2, 2},
	}, func(_ *testing.T, states []light) []light { return states })
}
