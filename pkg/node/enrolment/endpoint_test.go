// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"bytes"
	"errors"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestTheEndpointIsReplacedAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		format        format
		before, after string
	}{
		"a line": {
			asField, "kind: K\ncontainerRuntimeEndpoint: unix:///a.sock\nmaxPods: 1\n",
			"kind: K\ncontainerRuntimeEndpoint: unix:///k.sock\nmaxPods: 1\n",
		},
		"a line with a comment": {
			asField, "containerRuntimeEndpoint:  unix:///a.sock  # ours\n",
			"containerRuntimeEndpoint:  unix:///k.sock  # ours\n",
		},
		"in quotes": {
			asField, "containerRuntimeEndpoint: \"unix:///a.sock\"\n", "containerRuntimeEndpoint: unix:///k.sock\n",
		},
		"an empty one": {
			asField, "containerRuntimeEndpoint: \"\"\nkind: K\n", "containerRuntimeEndpoint: unix:///k.sock\nkind: K\n",
		},
		"none":                      {asField, "kind: K\n", "kind: K\ncontainerRuntimeEndpoint: unix:///k.sock\n"},
		"none and no end of a line": {asField, "kind: K", "kind: K\ncontainerRuntimeEndpoint: unix:///k.sock\n"},
		"another in a comment": {
			asField, "# containerRuntimeEndpoint: unix:///b.sock\nkind: K\n",
			"# containerRuntimeEndpoint: unix:///b.sock\nkind: K\ncontainerRuntimeEndpoint: unix:///k.sock\n",
		},
		"a flag of kubeadm": {
			asFlag, "A=\"--x=1 --container-runtime-endpoint=unix:///a.sock --y\"\n",
			"A=\"--x=1 --container-runtime-endpoint=unix:///k.sock --y\"\n",
		},
		"a flag at the end of a value": {
			asFlag, "A='--container-runtime-endpoint unix:///a.sock'\n",
			"A='--container-runtime-endpoint unix:///k.sock'\n",
		},
		"a flag in a drop-in, twice, and once in a comment": {
			asFlag,
			"# --container-runtime-endpoint=unix:///c.sock\nE=--container-runtime-endpoint=a\n" +
				"F=--container-runtime-endpoint=b\n",
			"# --container-runtime-endpoint=unix:///c.sock\nE=--container-runtime-endpoint=unix:///k.sock\n" +
				"F=--container-runtime-endpoint=unix:///k.sock\n",
		},
	} {
		changed, err := test.format.setEndpoint([]byte(test.before), "unix:///k.sock")
		if err != nil || string(changed) != test.after {
			t.Errorf("%s: %q, %v; want %q", name, changed, err, test.after)
		}
		if endpoint, err := test.format.endpointIn(changed); err != nil || endpoint != "unix:///k.sock" {
			t.Errorf("%s: then it is %q, %v", name, endpoint, err)
		}
	}
}

func TestAnEndpointThatCannotBeReplacedAloneIsRefused(t *testing.T) {
	for name, before := range map[string]string{
		"JSON":            `{"kind": "K", "containerRuntimeEndpoint": "unix:///a.sock"}`,
		"several lines":   "containerRuntimeEndpoint: >\n  unix:///a.sock\nkind: K\n",
		"a quoted key":    "\"containerRuntimeEndpoint\": unix:///a.sock\n",
		"two documents":   "kind: K\n---\nkind: L\n",
		"not YAML at all": "a: [",
	} {
		if changed, err := asField.setEndpoint([]byte(before), "unix:///k.sock"); err == nil {
			t.Errorf("%s: %q", name, changed)
		} else if name == "JSON" && !errors.Is(err, errForm) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := asFlag.setEndpoint([]byte("A=1\n"), "unix:///k.sock"); err == nil {
		t.Error("a file without the flag is changed")
	}
}

func FuzzSetEndpoint(f *testing.F) {
	f.Add([]byte("kind: K\ncontainerRuntimeEndpoint: unix:///a.sock # x\nmaxPods: 1\n"))
	f.Add([]byte("kind: K"))
	f.Add([]byte("containerRuntimeEndpoint: 'a'b\n"))
	f.Fuzz(func(t *testing.T, before []byte) {
		changed, err := asField.setEndpoint(before, "unix:///k.sock")
		if err != nil {
			return
		}
		if endpoint, err := asField.endpointIn(changed); err != nil || endpoint != "unix:///k.sock" {
			t.Fatalf("%q becomes %q, which says %q, %v", before, changed, endpoint, err)
		}
		old, err := asField.endpointIn(before)
		if err != nil {
			t.Fatalf("%q cannot be read, and becomes %q", before, changed)
		}
		back, err := asField.setEndpoint(changed, old)
		if err != nil {
			return // the old one may be none that stands in a line
		}
		was, is := map[string]any{}, map[string]any{}
		if yaml.Unmarshal(before, &was) != nil || yaml.Unmarshal(back, &is) != nil {
			t.Fatalf("%q goes back to %q", before, back)
		}
		if len(back) > len(before)+bytes.Count(before, []byte("\n"))+len(endpointField)+10 {
			t.Fatalf("%q goes back to %q", before, back)
		}
	})
}
