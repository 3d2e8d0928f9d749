// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// image makes the files of an image and of its mounts, and returns what is to be installed of them.
func image(t *testing.T) (p *Programs, write func(name, content string)) {
	t.Helper()
	dir := t.TempDir()
	write = func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"kubecri": "program", "devices/nvidiagpu.so": "plugin", "simulated/simgpu.so": "simulated",
		"kubecri.yaml": "mode: nri\n", "certificates.pem": "certificate",
	} {
		write(name, content)
	}
	return &Programs{
		Root: filepath.Join(dir, "root"), Directory: "/var/lib/programs", Program: filepath.Join(dir, "kubecri"),
		PluginDirs:    []string{filepath.Join(dir, "devices"), filepath.Join(dir, "simulated")},
		Plugins:       []string{"nvidiagpu"},
		Configuration: filepath.Join(dir, "kubecri.yaml"), Add: "hostnameOverride: a\n",
		Certificates: filepath.Join(dir, "certificates.pem"),
	}, write
}

// tree is what is below a directory, with modes and contents.
func tree(t *testing.T, directory string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(directory, path)
		all.WriteString(info.Mode().String() + " " + name + ": " + strings.TrimSpace(string(content)) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestInstalledProgramsAreThoseOfTheImage(t *testing.T) {
	p, write := image(t)
	install := func(p *Programs, want bool) {
		t.Helper()
		for range 2 { // the second may be by another process
			p.compared = false
			if changed, err := p.Install(); err != nil || changed != want {
				t.Errorf("Install reports %v, %v; want %v", changed, err, want)
			}
		}
		if err := p.Settle(); err != nil {
			t.Error(err)
		}
	}
	install(p, true)
	const want = "-rw-r--r-- devices/nvidiagpu.so: plugin\n" +
		"-rwxr-xr-x kubecri: program\n" +
		"-rw-r--r-- kubecri.yaml: mode: nri\nhostnameOverride: a\n" +
		"-rw-r--r-- seal-certificates.pem: certificate\n"
	if got := tree(t, p.hostPath("")); got != want {
		t.Errorf("installed is\n%s, want\n%s", got, want)
	}
	install(p, false)
	write("certificates.pem", "another")
	install(p, false) // kubecri reads it again
	if got := tree(t, p.hostPath("")); !strings.Contains(got, "seal-certificates.pem: another") {
		t.Errorf("the certificate has not changed:\n%s", got)
	}

	// The next image, in another container.
	write("kubecri", "program 2")
	next := *p
	next.Plugins = []string{"simgpu"}
	install(&next, true)
	got := tree(t, p.hostPath(""))
	if strings.Contains(got, "nvidiagpu") || !strings.Contains(got, "simgpu.so: simulated") ||
		!strings.Contains(got, "kubecri: program 2") {
		t.Errorf("installed is\n%s", got)
	}
	if err := next.Clean(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.hostPath("")); err == nil {
		t.Error("the directory is left")
	}
}

func TestAPluginThatNoImageHasIsNamed(t *testing.T) {
	p, _ := image(t)
	p.Plugins = []string{"widget"}
	if _, err := p.Install(); err == nil || !strings.Contains(err.Error(), `has brought the device plugin "widget"`) {
		t.Error(err)
	}
}
