// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dump is what containerd prints, as far as it matters.
const dump = `version = 3
imports = ['/etc/containerd/conf.d/nri.toml']

[plugins]
  [plugins.'io.containerd.nri.v1.nri']
    disable = false
    [plugins.'io.containerd.nri.v1.nri'.default_validator]
      enable = true
      required_plugins = ['kubedevice', 'other']
      tolerate_missing_plugins_annotation = 'tolerate.example.com'
`

// runtimeProcess is a machine with a container runtime.
type runtimeProcess struct {
	t       *testing.T
	root    string
	machine Machine
	pid     int // of the process that serves each socket
	peerErr error
	dump    string
	dumpErr error
	ran     []string // the last program with its arguments
}

func (p *runtimeProcess) Peer(context.Context, string) (int, error) { return p.pid, p.peerErr }

func (p *runtimeProcess) Run(_ context.Context, program string, args ...string) (string, error) {
	p.ran = append([]string{program}, args...)
	return p.dump, p.dumpErr
}

// booted is when the machine was; the runtime was started 100 seconds later.
const booted = 1700000000

func newRuntimeProcess(t *testing.T, args ...string) *runtimeProcess {
	t.Helper()
	p := &runtimeProcess{t: t, root: t.TempDir(), pid: 7, dump: dump}
	p.machine = Machine{
		Root: p.root, Processes: p,
	}
	p.write("/proc/7/cmdline", strings.Join(args, "\x00")+"\x00")
	p.write("/proc/7/stat", "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 12 0 10000 1 2")
	p.write("/proc/stat", fmt.Sprintf("cpu 1 2 3\nbtime %d\nprocesses 4\n", booted))
	return p
}

func (p *runtimeProcess) write(path, content string) {
	p.t.Helper()
	path = filepath.Join(p.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// change writes a file so many seconds after the start of the runtime.
func (p *runtimeProcess) change(path string, seconds int64) {
	p.t.Helper()
	p.write(path, "")
	at := time.Unix(booted+100+seconds, 0)
	if err := os.Chtimes(filepath.Join(p.root, path), at, at); err != nil {
		p.t.Fatal(err)
	}
}

func TestContainerdPrintsItsSettings(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		file string
	}{
		"without arguments":          {[]string{"/usr/bin/containerd"}, "/etc/containerd/config.toml"},
		"with a file":                {[]string{"/usr/bin/containerd", "--config=/a.toml"}, "/a.toml"},
		"with a file after the flag": {[]string{"/usr/bin/containerd", "-l", "debug", "-c", "/a.toml"}, "/a.toml"},
		"with a value that looks so": {[]string{"/usr/bin/containerd", "config"}, "/etc/containerd/config.toml"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRuntimeProcess(t, test.args...)
			p.change("/etc/containerd/conf.d/nri.toml", -50)
			got, err := p.machine.Settings(t.Context(), "/run/containerd.sock")
			if err != nil {
				t.Fatal(err)
			}
			want := Settings{
				Enabled: true, Required: []string{"kubedevice", "other"}, Tolerated: "tolerate.example.com",
				File: test.file,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			ran := []string{"/usr/bin/containerd", "--config=" + test.file, "config", "dump"}
			if diff := cmp.Diff(ran, p.ran); diff != "" {
				t.Errorf("what was run (-want +got):\n%s", diff)
			}
		})
	}
}

// testdata has what containerd 2.4.2 prints.
func TestAWholeConfigurationIsRead(t *testing.T) {
	whole, err := os.ReadFile("testdata/containerd-2.4.toml")
	if err != nil {
		t.Fatal(err)
	}
	p := newRuntimeProcess(t, "/usr/bin/containerd")
	p.dump = string(whole)
	got, err := p.machine.Settings(t.Context(), "/s")
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{Enabled: true, Required: []string{"a", "b"}, File: "/etc/containerd/config.toml"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheProgramIsTheOneThatRuns(t *testing.T) {
	p := newRuntimeProcess(t, "containerd")
	if err := os.Symlink("/opt/bin/containerd", filepath.Join(p.root, "/proc/7/exe")); err != nil {
		t.Fatal(err)
	}
	_, err := p.machine.Settings(t.Context(), "/run/containerd.sock")
	if err != nil || p.ran[0] != "/opt/bin/containerd" {
		t.Errorf("%q was run, %v", p.ran, err)
	}
}

func TestAValidatorThatIsOffIsOff(t *testing.T) {
	for name, printed := range map[string]string{
		"it is off":                      strings.Replace(dump, "enable = true", "enable = false", 1),
		"the runtime is too old for one": "[plugins.'io.containerd.nri.v1.nri']\ndisable = false\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := newRuntimeProcess(t, "/usr/bin/containerd")
			p.dump = printed
			if got, err := p.machine.Settings(t.Context(), "/s"); err != nil || got.Enabled {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestUnknownSettingsAreAnError(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		change func(*runtimeProcess)
		says   string
	}{
		"the process is in another container": {
			change: func(p *runtimeProcess) {
				p.pid = 0
			},
			says: "not to be seen from here",
		},
		"no runtime serves": {
			change: func(p *runtimeProcess) {
				p.peerErr = errors.New("refused")
			},
			says: "refused",
		},
		"something else serves": {args: []string{"/sbin/init"}, says: "served by init"},
		"the program lies somewhere": {
			args: []string{"containerd"}, says: "where the program containerd",
		},
		"the program was replaced": {
			change: func(p *runtimeProcess) {
				err := os.Symlink("/usr/bin/containerd (deleted)", filepath.Join(p.root, "/proc/7/exe"))
				if err != nil {
					p.t.Fatal(err)
				}
			},
			says: "was replaced after the container runtime was started",
		},
		"the file was changed": {
			change: func(p *runtimeProcess) { p.change("/etc/containerd/config.toml", 10) },
			says:   "config.toml was changed after the container runtime was started: restart the runtime",
		},
		"a file was put among those that are imported": {
			change: func(p *runtimeProcess) {
				p.dump = strings.Replace(dump, "nri.toml", "*.toml", 1)
				p.change("/etc/containerd/conf.d/nri.toml", -50)
				at := time.Unix(booted+110, 0)
				if err := os.Chtimes(filepath.Join(p.root, "/etc/containerd/conf.d"), at, at); err != nil {
					p.t.Fatal(err)
				}
			},
			says: "/etc/containerd/conf.d was changed",
		},
		"one of several imported files was changed": {
			change: func(p *runtimeProcess) {
				p.dump = strings.Replace(dump, "nri.toml", "*.toml", 1)
				p.change("/etc/containerd/conf.d/a.toml", 10)
			},
			says: "/etc/containerd/conf.d/a.toml was changed",
		},
		"an imported file was changed": {
			change: func(p *runtimeProcess) { p.change("/etc/containerd/conf.d/nri.toml", 10) },
			says:   "/etc/containerd/conf.d/nri.toml was changed",
		},
		"the program prints something else": {
			change: func(p *runtimeProcess) { p.dump = "usage: containerd" }, says: "config dump: toml",
		},
		"NRI is not in it": {
			change: func(p *runtimeProcess) { p.dump = "version = 3\n" }, says: "no section for NRI",
		},
		"neither on nor off": {
			change: func(p *runtimeProcess) { p.dump = strings.Replace(dump, "= true", "= 'yes'", 1) },
			says:   "containerdValidator.Enable of type bool",
		},
		"the program fails": {
			change: func(p *runtimeProcess) {
				p.dumpErr = errors.New("exit status 1")
			},
			says: "/usr/bin/containerd config dump: exit status 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if args == nil {
				args = []string{"/usr/bin/containerd"}
			}
			p := newRuntimeProcess(t, args...)
			if test.change != nil {
				test.change(p)
			}
			got, err := p.machine.Settings(t.Context(), "/run/containerd.sock")
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%+v, %v; want an error with %q", got, err, test.says)
			}
		})
	}
}

func TestCRIOServesItsSettings(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		want   Settings
		says   string
	}{
		"on": {
			answer: "[crio.nri]\nenable_nri = true\n" +
				"[crio.nri.default_validator]\nnri_enable_default_validator = true\n" +
				"nri_validator_required_plugins = [\"kubedevice\"]\n",
			want: Settings{Enabled: true, Required: []string{"kubedevice"}, File: "/etc/crio"},
		},
		"too old for a validator": {
			answer: "[crio.nri]\nenable_nri = true\n", says: "no section for the default validator",
		},
		"no configuration": {says: "404"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRuntimeProcess(t, "/usr/bin/crio")
			listener, err := net.Listen("unix", filepath.Join(p.root, "crio.sock"))
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/config" || test.answer == "" {
					http.NotFound(w, r)
					return
				}
				fmt.Fprint(w, test.answer)
			})}
			served := make(chan error, 1)
			go func() { served <- server.Serve(listener) }()
			defer func() { server.Close(); <-served }()
			got, err := p.machine.Settings(t.Context(), "/crio.sock")
			if test.says == "" && err != nil || test.says != "" &&
				(err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Fatalf("error %v, want %q", err, test.says)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The process is this one, which is no runtime.
func TestThePeerOfASocketIsWhoListens(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	m := NewMachine()
	if pid, err := m.Processes.Peer(t.Context(), socket); err != nil || pid != os.Getpid() {
		t.Errorf("process %d, %v; want %d", pid, err, os.Getpid())
	}
	started, err := m.startOf(os.Getpid())
	if ago := time.Since(started); err != nil || ago < 0 || ago > time.Hour {
		t.Errorf("started %v, %v", started, err)
	}
	if printed, err := m.Processes.Run(t.Context(), "/bin/sh", "-c", "echo said"); err != nil || printed != "said\n" {
		t.Errorf("printed %q, %v", printed, err)
	}
	if _, err := m.Processes.Run(t.Context(), "/bin/sh", "-c", "echo why >&2; exit 3"); err == nil ||
		err.Error() != "exit status 3: why" {
		t.Errorf("failed with %v", err)
	}
}
