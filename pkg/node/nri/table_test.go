// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// printed is TOML as programs print it.
const printed = `version = 3
root = '/var/lib/containerd'
imports = ['/etc/containerd/conf.d/a.toml', "/etc/b \"c\".toml", ]
empty = []

[grpc]
  address = "/run/containerd/containerd.sock"
  note = '''
[plugins.'io.containerd.nri.v1.nri'.default_validator]
enable = false
'''

[plugins]
  [plugins.'io.containerd.nri.v1.nri']
    disable = false
    [plugins."io.containerd.nri.v1.nri".default_validator]
      enable = true # nothing prints this
      required_plugins = ['kubedevice']

[[list]]
  enable = false

[plugins.'io.containerd.nri.v1.nri.default_validator']
  enable = "other"
`

func TestTheTablesOfADocumentAreRead(t *testing.T) {
	const plugin = "io.containerd.nri.v1.nri"
	for name, test := range map[string]struct {
		path []string
		want table
	}{
		"the document's own values": {nil, table{
			"version": "3", "root": "'/var/lib/containerd'", "empty": "[]",
			"imports": `['/etc/containerd/conf.d/a.toml', "/etc/b \"c\".toml", ]`,
		}},
		"a table in quotes of two kinds": {[]string{"plugins", plugin, "default_validator"}, table{
			"enable": "true # nothing prints this", "required_plugins": "['kubedevice']",
		}},
		"one whose name has dots": {[]string{"plugins", plugin + ".default_validator"}, table{"enable": `"other"`}},
		"one without values":      {[]string{"plugins"}, table{}},
		"one that is not there":   {[]string{"plugins", "nri"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tableOf(printed, test.path...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNotReadIsAnErrorAndNoGuess(t *testing.T) {
	for _, document := range []string{
		"[plugins", "[]", "[a.]", "[a b]", "[a] b", "a.b = 1", "a", "= 1", `"a = 1`, "a = [\n  1,\n]",
	} {
		if got, err := tableOf(document); err == nil {
			t.Errorf("%q is read as %v", document, got)
		}
	}
	values := table{
		"one": `"a" "b"`, "open": `"a`, "list": `["a" "b"]`, "half": `["a"`, "numbers": "[1]", "yes": "yes",
		"both": "true # or not",
	}
	for _, key := range []string{"one", "open", "yes"} {
		if got, err := values.string(key); err == nil {
			t.Errorf("%s is read as %q", values[key], got)
		}
	}
	for _, key := range []string{"list", "half", "numbers", "yes"} {
		if got, err := values.strings(key); err == nil {
			t.Errorf("%s is read as %q", values[key], got)
		}
	}
	for _, key := range []string{"yes", "both"} {
		if got, err := values.bool(key); err == nil {
			t.Errorf("%s is read as %v", values[key], got)
		}
	}
}

func TestValuesAreRead(t *testing.T) {
	top, err := tableOf(printed)
	if err != nil {
		t.Fatal(err)
	}
	imports, err := top.strings("imports")
	want := []string{"/etc/containerd/conf.d/a.toml", `/etc/b "c".toml`}
	if diff := cmp.Diff(want, imports); err != nil || diff != "" {
		t.Errorf("imports: %v (-want +got):\n%s", err, diff)
	}
	for _, key := range []string{"empty", "missing"} {
		if got, err := top.strings(key); err != nil || len(got) > 0 {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	if root, err := top.string("root"); err != nil || root != "/var/lib/containerd" {
		t.Errorf("root: %q, %v", root, err)
	}
}

// A table after a document that can be read is read, unless the document ends inside a string.
func FuzzTableOf(f *testing.F) {
	f.Add(printed)
	f.Add("[a.b]\nx = '''\n[a.b]\n'''\n")
	f.Add("[a.\"\\u0062\"]\nx=1")
	f.Add("x = ['a', \"b\"]")
	f.Fuzz(func(t *testing.T, document string) {
		top, err := tableOf(document)
		if err != nil {
			return
		}
		for key := range top {
			// What they return is another test's business: they must not panic.
			_, _ = top.bool(key)
			_, _ = top.string(key)
			_, _ = top.strings(key)
		}
		got, err := tableOf(document+"\n[kubedevice.'last one']\nkey = 1\n", "kubedevice", "last one")
		if err != nil {
			t.Fatal(err)
		}
		open := strings.Contains(document, `"""`) || strings.Contains(document, `'''`)
		if got["key"] != "1" && !open {
			t.Errorf("the last table is read as %v", got)
		}
	})
}
