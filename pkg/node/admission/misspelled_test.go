// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"
)

// KubeDevice's scheduler has such a pod wait; another one does not know the key.
func TestAMisspelledRequestOfAPodThatAnotherSchedulerBoundIsNamed(t *testing.T) {
	const request = `{"runningcontainer":{"main":{"requests":{"gpu/a/cards":1}}}}`
	for name, test := range map[string]struct {
		key, source string
		says        string
	}{
		"a misspelled key": {
			"KubeDevice/Deviceinfo", sourceAPI,
			`annotation KubeDevice/Deviceinfo: no program reads it; did you mean "KubeDevice/DeviceInfo"? ` +
				"The pod starts without the devices",
		},
		"a key of another program":     {"example.com/DeviceInfo", sourceAPI, ""},
		"another misspelled key of us": {"KubeDevice/OnDevicefailure", sourceAPI, ""},
		"a static pod":                 {"KubeDevice/Deviceinfo", "file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, true)
			f.pods["u"] = plain
			if _, err := f.create(t, "u", "main", test.source, map[string]string{test.key: request}); err != nil {
				t.Fatal(err)
			}
			said := strings.Join(f.mistakes, "\n")
			if !strings.HasPrefix(said, test.says) || (said == "") != (test.says == "") {
				t.Errorf("events %q, want %q", said, test.says)
			}
		})
	}
}
