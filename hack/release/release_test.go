// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

func TestTheSameInputsMakeTheSameBytes(t *testing.T) {
	key := generateKey(t)
	first, second := inputs(t), inputs(t) // at other paths, at another time
	first.key, second.key = key, key
	one, two := written(t, first), written(t, second)
	for name := range one {
		if one[name] != two[name] {
			t.Errorf("%s is another one", name)
		}
	}
	if len(one) != len(two) {
		t.Errorf("one release has %d files, the other one %d", len(one), len(two))
	}
	writeFile(t, filepath.Join(second.sources, "LICENSE"), "another licence\n")
	if three := written(t, second); three[sumsName] == one[sumsName] {
		t.Error("a release with another licence has the same checksums")
	}
}

func TestAReleaseHasAllFiles(t *testing.T) {
	r := inputs(t)
	r.key = generateKey(t)
	want := []string{
		"RELEASE_NOTES.md", "SHA256SUMS", "SHA256SUMS.sig", "kubedevice.pub", "krew-device.yaml",
		"artifacthub-repo.yml", "kubedevice-1.2.3.tgz",
		"kubedevice_v1.2.3_deploy.tar.gz", "kubedevice-kubecri_v1.2.3_image.tar",
		"kubedevice-kubecri_v1.2.3_image_amd64.spdx.json", "kubedevice-kubecri_v1.2.3_image_arm64.spdx.json",
	}
	for _, architecture := range testArchitectures {
		for _, name := range []string{
			"kubedevice_v1.2.3_linux_" + architecture + ".tar.gz",
			"kubedevice-kubecri_1.2.3_" + architecture + ".deb",
			"kubedevice-nvidiagpu_1.2.3_" + architecture + ".deb",
			"kubedevice-scheduler_1.2.3_" + architecture + ".deb",
			"kubectl-device-linux-" + architecture + ".tar.gz",
			"kubectl-device-darwin-" + architecture + ".tar.gz",
			"kubectl-device-windows-" + architecture + ".tar.gz",
		} {
			want = append(want, name, name+".spdx.json")
		}
	}
	slices.Sort(want)
	found := written(t, r)
	if got := slices.Sorted(maps.Keys(found)); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	for name := range found {
		listed := strings.Contains(found[sumsName], "  "+name+"\n")
		if itself := name == sumsName || name == signatureName || name == publicName; listed == itself {
			t.Errorf("%s has %s: %t", sumsName, name, listed)
		}
	}
	manifest := found["krew-device.yaml"]
	if strings.Contains(manifest, "VERSION") || strings.Contains(manifest, "SHA256-") {
		t.Errorf("krew's manifest is not filled in: %s", manifest)
	}
}

func TestAnArchiveHasProgramsThatCanBeRun(t *testing.T) {
	r := inputs(t)
	found := written(t, r)
	file := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(file, []byte(found["kubedevice_v1.2.3_linux_arm64.tar.gz"]), 0o644))
	members, err := readTarGz(file)
	must(t, err)
	modes := map[string]int64{}
	for _, m := range members {
		name, ok := strings.CutPrefix(m.path, "kubedevice_v1.2.3_linux_arm64/")
		if !ok {
			t.Errorf("%s is not in the archive's directory", m.path)
		}
		modes[name] = m.mode
	}
	if want := map[string]int64{
		"LICENSE": 0o644, "kube-scheduler": 0o755, "kubecri": 0o755,
		"plugins/device/nvidiagpu.so": 0o644,
		"plugins/simulated/simgpu.so": 0o644, "plugins/scheduler/nvidiagpu.so": 0o644,
		"plugins/scheduler/simgpu.so": 0o644,
	}; !cmp.Equal(modes, want) {
		t.Error(cmp.Diff(want, modes))
	}
}

func TestBillsOfMaterialsNameWhatIsInside(t *testing.T) {
	found := written(t, inputs(t))
	for name, want := range map[string][]string{
		"kubedevice_v1.2.3_linux_amd64.tar.gz":  {"kubecri", "kube-scheduler", "simgpu.so", "stdlib"},
		"kubedevice-kubecri_v1.2.3_image_arm64": {"kubecri", "libc6", "stdlib"},
		"kubectl-device-linux-amd64.tar.gz":     {"kubectl-device", "page-library", "stdlib"},
		"kubedevice-scheduler_1.2.3_arm64.deb":  {"kube-scheduler", "nvidiagpu.so", "stdlib"},
	} {
		t.Run(name, func(t *testing.T) {
			document, err := json.Read(strings.NewReader(found[name+".spdx.json"]))
			must(t, err)
			checkDocument(t, document, name)
			var names []string
			for _, p := range document.Packages {
				names = append(names, p.PackageName)
			}
			for _, name := range want {
				if !slices.Contains(names, name) {
					t.Errorf("it has the packages %q, not %s", names, name)
				}
			}
			if slices.Contains(names, "libc.so.6") {
				t.Error("a library of a package of Debian stands for itself")
			}
		})
	}
	if libc := "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=arm64&distro=debian-12"; !strings.Contains(
		found["kubedevice-kubecri_v1.2.3_image_arm64.spdx.json"], libc) {
		t.Errorf("scanners find no %s", libc)
	}
}

// checkDocument makes sure that each element is there once and belongs to what the document
// describes.
func checkDocument(t *testing.T, document *v2_3.Document, name string) {
	t.Helper()
	elements := map[common.ElementID]bool{document.SPDXIdentifier: true}
	for _, p := range document.Packages {
		if elements[p.PackageSPDXIdentifier] {
			t.Errorf("the identifier %s is there twice", p.PackageSPDXIdentifier)
		}
		elements[p.PackageSPDXIdentifier] = true
		if p.PackageDownloadLocation == "" || p.PackageLicenseDeclared == "" {
			t.Errorf("%s lacks fields: %+v", p.PackageName, p)
		}
	}
	reached := map[common.ElementID]bool{}
	for _, r := range document.Relationships {
		from, to := r.RefA.ElementRefID, r.RefB.ElementRefID
		if !elements[from] || !elements[to] {
			t.Errorf("%s %s %s is about what is not there", from, r.Relationship, to)
		}
		reached[to] = true
	}
	for element := range elements {
		if element != document.SPDXIdentifier && !reached[element] {
			t.Errorf("%s belongs to nothing", element)
		}
	}
	if document.DocumentName != name {
		t.Errorf("it is about %s", document.DocumentName)
	}
}

func TestWordsThatDifferHaveOtherIdentifiers(t *testing.T) {
	if identifier("a/b") == identifier("a_b") || identifier("a", "b") != "a-b" {
		t.Errorf("%s, %s, %s", identifier("a/b"), identifier("a_b"), identifier("a", "b"))
	}
}

func TestAReleaseThatIsNotWholeIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*testing.T, *release)
		want  string
	}{
		"a version without v": {func(_ *testing.T, r *release) { r.version = "1.2.3" }, `version "1.2.3"`},
		"a program is missing": {func(t *testing.T, r *release) {
			must(t, os.Remove(filepath.Join(r.programs, "arm64", "kubecri")))
		}, "kubecri"},
		"an architecture that no image has": {func(t *testing.T, r *release) {
			r.architectures = append(slices.Clone(r.architectures), "riscv64")
			must(t, os.CopyFS(filepath.Join(r.programs, "riscv64"), os.DirFS(filepath.Join(r.programs, "amd64"))))
		}, "not there for riscv64"},
		"two charts": {func(t *testing.T, r *release) {
			writeFile(t, filepath.Join(r.charts, "kubedevice-1.2.2.tgz"), "")
		}, "2 charts"},
		"a program without the SDK": {func(t *testing.T, r *release) {
			itself, err := os.Executable()
			must(t, err)
			content, err := os.ReadFile(itself)
			must(t, err)
			writeFile(t, filepath.Join(r.programs, "amd64", "kubecri"), string(content))
		}, "without the SDK"},
		"a changelog without sections": {func(t *testing.T, r *release) {
			writeFile(t, filepath.Join(r.sources, "CHANGELOG.md"), "# Changelog\n")
		}, "no section"},
	} {
		t.Run(name, func(t *testing.T) {
			r := inputs(t)
			test.spoil(t, r)
			if err := r.write(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

func TestAReleaseThatMustNotBePublishedSaysSo(t *testing.T) {
	r := inputs(t)
	r.revision += "-dirty"
	must(t, os.Remove(filepath.Join(r.kubectl, "kubectl-device-darwin-arm64.tar.gz")))
	var out bytes.Buffer
	must(t, r.write(t.Context(), &out))
	for _, want := range []string{
		"UNSIGNED", "LOCAL", "DIRTY",
		"INCOMPLETE: it lacks krew-device.yaml, as there is no kubectl-device-darwin-arm64",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %s: %s", want, out.String())
		}
	}
}
