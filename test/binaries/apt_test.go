// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// debianPackage is a package of a test's archive.
type debianPackage struct {
	depends string
	files   []string
}

// serveArchive makes apt use an archive that has these packages alone, on a machine on which those
// named are installed, until the test ends.
func serveArchive(t *testing.T, packages map[string]debianPackage, installed ...string) {
	t.Helper()
	archive := t.TempDir()
	var index, status strings.Builder
	for name, made := range packages {
		tree := t.TempDir()
		control := fmt.Sprintf("Package: %s\nVersion: 1\nArchitecture: %s\nMaintainer: A <a@example.com>\n"+
			"Description: none\n", name, runtime.GOARCH)
		if made.depends != "" {
			control += "Depends: " + made.depends + "\n"
		}
		for _, file := range append([]string{"DEBIAN/control"}, made.files...) {
			write(t, filepath.Join(tree, file), name)
		}
		write(t, filepath.Join(tree, "DEBIAN", "control"), control)
		file := name + "_1_" + runtime.GOARCH + ".deb"
		command := exec.CommandContext(t.Context(), "dpkg-deb", "--build", "--root-owner-group", tree,
			filepath.Join(archive, file))
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		content, err := os.ReadFile(filepath.Join(archive, file))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, file, len(content),
			sha256.Sum256(content))
		for _, has := range installed {
			if has == name {
				fmt.Fprintf(&status, "%sStatus: install ok installed\n\n", control)
			}
		}
	}
	write(t, filepath.Join(archive, "Packages"), index.String())
	machine := t.TempDir()
	write(t, filepath.Join(machine, "status"), status.String())
	write(t, filepath.Join(machine, "sources.list"), fmt.Sprintf("deb [trusted=yes] copy:%s ./\n", archive))
	write(t, filepath.Join(machine, "apt.conf"), fmt.Sprintf("Dir::Etc::SourceList %q;\nDir::Etc::SourceParts \"-\";\n"+
		"Dir::State::Status %q;\n", filepath.Join(machine, "sources.list"), filepath.Join(machine, "status")))
	t.Setenv("APT_CONFIG", filepath.Join(machine, "apt.conf"))
}

// chromiumArchive has what Chromium needs, as Debian has it.
func chromiumArchive() map[string]debianPackage {
	libraries := "usr/lib/x86_64-linux-gnu/"
	return map[string]debianPackage{
		"chromium-headless-shell": {depends: "libnss3, libexpat1, libc6", files: []string{
			"usr/lib/chromium/chromium-headless-shell",
		}},
		"libnss3":           {files: []string{libraries + "libnss3.so"}},
		"libexpat1":         {files: []string{"lib/x86_64-linux-gnu/libexpat.so.1"}},
		"libc6":             {files: []string{libraries + "libc.so.6"}},
		"fontconfig-config": {}, "fonts-dejavu-core": {}, "fonts-inter": {},
	}
}

func TestChromiumHasAllItsLibrariesOnEveryMachine(t *testing.T) {
	for name, installed := range map[string][]string{
		"nothing":             nil,
		"a library":           {"libexpat1", "libc6"},
		"all libraries":       {"libnss3", "libexpat1", "libc6"},
		"Chromium and all of": {"chromium-headless-shell", "libnss3", "libexpat1", "libc6", "fonts-inter"},
	} {
		t.Run(name, func(t *testing.T) {
			serveArchive(t, chromiumArchive(), installed...)
			b := &builder{dir: t.TempDir(), report: newReport(&bytes.Buffer{}, "chromium")}
			if err := unpackChromium(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			script, err := os.ReadFile(b.output(ChromiumProgram))
			if err != nil {
				t.Fatal(err)
			}
			for _, library := range []string{"libnss3.so", "libexpat.so.1"} {
				if !onPath(string(script), library) {
					t.Errorf("%s is in no directory of the library path of\n%s", library, script)
				}
			}
			if onPath(string(script), "libc.so.6") {
				t.Errorf("the C library is not that of the machine's loader:\n%s", script)
			}
		})
	}
}

// onPath reports whether a library is in a directory that a script makes programs search.
func onPath(script, library string) bool {
	_, path, _ := strings.Cut(script, "LD_LIBRARY_PATH=")
	path, _, _ = strings.Cut(path, "\n")
	for _, directory := range strings.Split(path, ":") {
		if _, err := os.Stat(filepath.Join(directory, library)); err == nil {
			return true
		}
	}
	return false
}

func TestAPackageThatDoesNotHaveWhatIsExpectedIsAnErrorThatSaysWhatIsMissing(t *testing.T) {
	archive := chromiumArchive()
	archive["libnss3"] = debianPackage{}
	archive["libc6"] = debianPackage{}
	serveArchive(t, archive)
	b := &builder{dir: t.TempDir(), report: newReport(&bytes.Buffer{}, "chromium")}
	err := unpackChromium(t.Context(), b)
	if err == nil || !strings.Contains(err.Error(), "find the libraries of Chromium: 0 files are ") {
		t.Errorf("error %v", err)
	}
}
