// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodesContainerdsValidator(t *testing.T) {
	const section = "[plugins.'io.containerd.nri.v1.nri']\n"
	for name, test := range map[string]struct {
		document string
		want     Settings
		imports  []string
	}{
		"keys and strings in both kinds of quotes": {
			document: `imports = ['/etc/containerd/conf.d/a.toml', "/etc/b \"c\".toml", ]` + "\n" + section +
				`[plugins."io.containerd.nri.v1.nri".default_validator]` +
				"\nenable = true\nrequired_plugins = ['kubedevice']\n",
			want:    Settings{Enabled: true, Required: []string{"kubedevice"}},
			imports: []string{"/etc/containerd/conf.d/a.toml", `/etc/b "c".toml`},
		},
		"no validator": {document: section},
		"a string that looks like a section": {
			document: section +
				"note = '''\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n'''\n",
		},
		"another section whose name has dots": {
			document: section + "[plugins.'io.containerd.nri.v1.nri.default_validator']\nenable = \"other\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, imports, err := decodeContainerd(test.document)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.imports, imports); diff != "" {
				t.Errorf("imports (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusesConfigurationsThatItCannotDecode(t *testing.T) {
	const section = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\n"
	for name, document := range map[string]string{
		"no TOML":                "[plugins",
		"no section for NRI":     "version = 3\n",
		"a truth that is a text": section + `enable = "yes"`,
		"a list of numbers":      section + "required_plugins = [1]",
		"a number for a name":    section + "tolerate_missing_plugins_annotation = 1",
		"imports that are none":  "imports = 'a'\n" + section,
	} {
		if got, _, err := decodeContainerd(document); err == nil {
			t.Errorf("%s: decoded as %+v", name, got)
		}
	}
}

func FuzzDecodeValidator(f *testing.F) {
	f.Add(dump)
	f.Add("[crio.nri.default_validator]\nnri_enable_default_validator = true\n")
	f.Fuzz(func(_ *testing.T, document string) { // it must not panic
		_, _, _ = decodeContainerd(document)
		_, _ = decodeCRIO(document)
	})
}
