// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// debianRoot is a directory that dpkg takes for a machine.
type debianRoot struct {
	*testing.T
	dir, packages string
}

// newDebianRoot returns an empty machine, and the directory of a release's packages.
func newDebianRoot(t *testing.T) *debianRoot {
	t.Helper()
	r := inputs(t)
	must(t, os.MkdirAll(r.out, 0o755))
	must(t, r.writePackages())
	root := &debianRoot{t, t.TempDir(), r.out}
	writeFile(t, filepath.Join(root.dir, "var/lib/dpkg/status"), "")
	return root
}

// dpkg runs dpkg on the machine. Maintainer scripts run with DPKG_ROOT, as debootstrap's do; what
// the packages depend on is not there.
func (r *debianRoot) dpkg(arguments ...string) error {
	r.Helper()
	command := exec.CommandContext(r.Context(), "dpkg", append([]string{
		"--root=" + r.dir, "--log=/dev/null", "--force-not-root", "--force-script-chrootless", "--force-depends",
		"--force-architecture", "--force-bad-path",
	}, arguments...)...)
	out, err := command.CombinedOutput()
	if err != nil {
		return &dpkgError{string(out)}
	}
	return nil
}

type dpkgError struct{ output string }

func (e *dpkgError) Error() string { return e.output }

func (r *debianRoot) deb(name string) string {
	return filepath.Join(r.packages, name+"_1.2.3_amd64.deb")
}

// tree returns the paths of all files and directories that are not dpkg's own.
func (r *debianRoot) tree() []string {
	r.Helper()
	var found []string
	must(r.T, fs.WalkDir(os.DirFS(r.dir), ".", func(path string, _ fs.DirEntry, err error) error {
		if path == "var/lib/dpkg" {
			return fs.SkipDir
		}
		found = append(found, path)
		return err
	}))
	return found
}

var allPackages = []string{"kubedevice-kubecri", "kubedevice-nvidiagpu", "kubedevice-scheduler"}

func TestPackagesAreInstalledAndAPurgeLeavesNothing(t *testing.T) {
	root := newDebianRoot(t)
	before := root.tree()
	for _, name := range allPackages {
		must(t, root.dpkg("--install", root.deb(name)))
	}
	installed := root.tree()
	for _, path := range []string{
		"usr/bin/kubecri", "usr/lib/kubedevice/kube-scheduler", "usr/lib/kubedevice/devices/nvidiagpu.so",
		"usr/lib/kubedevice/schedulers/nvidiagpu.so", "usr/lib/systemd/system/kubecri.socket",
		"etc/kubedevice/kubecri.yaml", "usr/share/doc/kubedevice-kubecri/copyright",
	} {
		if !slices.Contains(installed, path) {
			t.Errorf("/%s is not there", path)
		}
	}
	for _, path := range installed {
		if strings.HasPrefix(path, "usr/local") {
			t.Errorf("/%s is the administrator's", path)
		}
	}
	writeFile(t, filepath.Join(root.dir, "var/lib/kubedevice/grants"), "what kubecri has written\n")
	must(t, root.dpkg(append([]string{"--remove"}, allPackages...)...))
	if removed := root.tree(); !slices.Contains(removed, "var/lib/kubedevice/grants") ||
		!slices.Contains(removed, "etc/kubedevice/kubecri.yaml") {
		t.Errorf("a removal takes state or configuration: %q", removed)
	}
	must(t, root.dpkg(append([]string{"--purge"}, allPackages...)...))
	after := slices.DeleteFunc(root.tree(), func(path string) bool { // an empty directory of everybody's
		return slices.Contains(before, path) || slices.Contains([]string{"etc", "usr", "var", "var/lib"}, path)
	})
	if len(after) > 0 {
		t.Errorf("a purge leaves %q", after)
	}
}

func TestFilesThatTheAdministratorChangedAreKept(t *testing.T) {
	root := newDebianRoot(t)
	must(t, root.dpkg("--install", root.deb("kubedevice-kubecri")))
	changed := filepath.Join(root.dir, "etc/kubedevice/kubecri.yaml")
	writeFile(t, changed, "changed\n")
	certificates := filepath.Join(root.dir, "etc/kubedevice/seal-certificates.pem")
	writeFile(t, certificates, "certificates\n")
	must(t, root.dpkg("--force-confdef", "--force-confold", "--install", root.deb("kubedevice-kubecri")))
	if content, err := os.ReadFile(changed); err != nil || string(content) != "changed\n" {
		t.Errorf("the configuration is %q, %v", content, err)
	}
	must(t, root.dpkg("--purge", "kubedevice-kubecri"))
	if _, err := os.Stat(certificates); err != nil {
		t.Errorf("a file that is no package's is gone: %v", err)
	}
}

func TestKubecriIsNotRemovedFromAnEnrolledNode(t *testing.T) {
	root := newDebianRoot(t)
	must(t, root.dpkg("--install", root.deb("kubedevice-kubecri")))
	journal := filepath.Join(root.dir, "var/lib/kubedevice-enrolment")
	writeFile(t, journal, "{}")
	err := root.dpkg("--remove", "kubedevice-kubecri")
	if err == nil || !strings.Contains(err.Error(), "kubecri leave") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(filepath.Join(root.dir, "usr/bin/kubecri")); err != nil {
		t.Errorf("the program is gone: %v", err)
	}
	must(t, os.Remove(journal))
	must(t, root.dpkg("--remove", "kubedevice-kubecri"))
}

func TestAPluginNeedsItsHostInTheSameVersion(t *testing.T) {
	root := newDebianRoot(t)
	for name, want := range map[string]string{
		"kubedevice-nvidiagpu": "libc6 (>= 2.34), kubedevice-kubecri (= 1.2.3)",
		"kubedevice-scheduler": "libc6 (>= 2.34)",
	} {
		out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--field", root.deb(name), "Depends").Output()
		must(t, err)
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("%s depends on %q, want %q", name, got, want)
		}
	}
}

// packagedPaths are the paths of programs and plugins in units and manifests.
var packagedPaths = regexp.MustCompile(`/usr/[A-Za-z0-9/._-]+`)

func TestUnitsAndManifestsNameWhatIsInThePackages(t *testing.T) {
	root := newDebianRoot(t)
	for _, name := range allPackages {
		must(t, root.dpkg("--install", root.deb(name)))
	}
	looked := 0
	for _, file := range []string{
		"usr/lib/systemd/system/kubecri.service", "usr/lib/systemd/system/kubedevice-scheduler.service",
		"etc/kubedevice/kubecri.yaml", "usr/share/kubedevice/kubeadm/patches/kube-scheduler0+json.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(root.dir, file))
		must(t, err)
		for _, path := range packagedPaths.FindAllString(string(text), -1) {
			looked++
			if _, err := os.Stat(filepath.Join(root.dir, strings.TrimRight(path, "."))); err != nil {
				t.Errorf("%s names %s, which no package has", file, path)
			}
		}
	}
	if looked < 6 {
		t.Errorf("only %d paths were looked at", looked)
	}
}

func TestAPackageOfAPrereleaseSortsBeforeItsRelease(t *testing.T) {
	r := inputs(t)
	r.version = "v1.2.3-rc.1"
	must(t, r.write(t.Context(), io.Discard))
	if _, err := os.Stat(filepath.Join(r.out, "kubedevice-nvidiagpu_1.2.3~rc.1_amd64.deb")); err != nil {
		t.Error(err)
	}
}
