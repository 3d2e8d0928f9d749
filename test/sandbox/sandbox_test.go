// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cgroup"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// firstProcess makes this test's program the first process of a sandbox.
const firstProcess = "KUBEDEVICE_SANDBOX_FIRST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(firstProcess) != "" {
		if err := sandbox.Main(); err != nil {
			os.Stderr.WriteString(err.Error()) //nolint:errcheck // nowhere else to say it
		}
		return
	}
	if code, skipped := clustertest.Skipped(); skipped {
		os.Exit(code)
	}
	os.Setenv(firstProcess, "yes") //nolint:errcheck // the name is valid
	goleak.VerifyTestMain(m)
}

const timeout = time.Minute

func newConfig(t *testing.T) sandbox.Config {
	t.Helper()
	dir := t.TempDir()
	cgroups, err := cgroup.Open(cgroup.DefaultMount, "kubedevice-sandbox-test-"+filepath.Base(filepath.Dir(dir)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroups.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return sandbox.Config{Name: "here", Dir: dir, Init: os.Args[0], Log: filepath.Join(dir, "log"), Cgroup: cgroups}
}

func open(t *testing.T, config sandbox.Config) (context.Context, *sandbox.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	opened, err := sandbox.Open(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, opened
}

// sh runs a shell command in a sandbox and returns what it prints.
func sh(ctx context.Context, t *testing.T, in *sandbox.Sandbox, command string, mounts ...sandbox.Mount) string {
	t.Helper()
	var out bytes.Buffer
	err := in.Run(ctx, sandbox.Command{
		Path: "/bin/sh", Args: []string{"-ec", command}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Mounts: mounts, Stdout: &out, Stderr: &out,
	})
	if err != nil {
		t.Errorf("%s: %v: %s", command, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

func TestASandboxHasItsOwnNamespacesAndFiles(t *testing.T) {
	ctx, in := open(t, newConfig(t))
	before, err := os.ReadFile("/proc/sys/vm/panic_on_oom")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ command, want string }{
		"host name":          {"hostname", "here"},
		"process numbers":    {"set -- /proc/[0-9]*; echo $#", "2"}, // its first process and the shell
		"network":            {"ls /proc/sys/net/ipv4/conf | tr '\n' ' '", "all default lo"},
		"device nodes":       {"mknod /dev/odd c 10 229 && ls /dev/odd", "/dev/odd"},
		"/run":               {"touch /run/odd && ls /run", "odd"},
		"/var":               {"touch /var/lib/odd && ls /var/lib", "odd"},
		"sysctls of kubelet": {"echo 2 > /proc/sys/vm/panic_on_oom && cat /proc/sys/vm/panic_on_oom", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sh(ctx, t, in, test.command); got != test.want {
				t.Errorf("%s: %q, want %q", test.command, got, test.want)
			}
		})
	}
	for _, path := range []string{"/dev/odd", "/run/odd", "/var/lib/odd"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of the sandbox is the machine's: %v", path, err)
		}
	}
	if after, err := os.ReadFile("/proc/sys/vm/panic_on_oom"); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the machine's vm.panic_on_oom was %q, is %q, %v", before, after, err)
	}
}

func TestTheMachinesFilesCanBeReadButOnlyVisibleDirectoriesWritten(t *testing.T) {
	config := newConfig(t)
	visible, err := os.MkdirTemp("/var/tmp", "kubedevice-visible-") // which a sandbox hides otherwise
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(visible)
	config.Visible = []string{visible}
	ctx, in := open(t, config)

	want := "read-only visible"
	got := sh(ctx, t, in, "cat /etc/passwd >/dev/null; touch /etc/odd 2>/dev/null || echo read-only; touch "+visible+
		"/odd; [ -f "+visible+"/odd ] && echo visible")
	if strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(visible, "odd")); err != nil {
		t.Error(err)
	}
}

func TestMountsOfACommandAreItsOwn(t *testing.T) {
	ctx, in := open(t, newConfig(t))
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "made-up"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := sh(ctx, t, in, "ls /sys", sandbox.Mount{Source: tree, Target: "/sys"}); got != "made-up" {
		t.Errorf("/sys has %q for the command with the mount", got)
	}
	if got := sh(ctx, t, in, "ls /sys"); strings.Contains(got, "made-up") {
		t.Errorf("/sys has %q for others", got)
	}
}

func TestConnectionsComeInThroughTheDoorAndByDial(t *testing.T) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	config := newConfig(t)
	config.Doors = []sandbox.Door{{Listener: listener, To: "127.0.0.1:80"}}
	ctx, in := open(t, config)
	var inside net.Listener
	err = in.Do(func() (err error) {
		if err := setUpLoopback(); err != nil {
			return err
		}
		inside, err = net.Listen("tcp", "127.0.0.1:80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go echo(inside)
	defer inside.Close()

	for name, dial := range map[string]func() (net.Conn, error){
		"through the door": func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) },
		"by Dial":          func() (net.Conn, error) { return in.Dial(ctx, "tcp", "127.0.0.1:80") },
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
				t.Errorf("got %q back, %v", got, err)
			}
		})
	}
}

// setUpLoopback sets the loopback device of the calling thread's network up.
func setUpLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

func echo(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		io.Copy(conn, conn) //nolint:errcheck // the other end reports it
		conn.Close()
	}
}

func TestClosingKillsEverythingAndKeepsVar(t *testing.T) {
	config := newConfig(t)
	ctx, in := open(t, config)
	sh(ctx, t, in, "echo kept > /var/lib/file; mkdir /run/lost")
	process, err := in.Start(sandbox.Command{Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-process.Done():
		if process.Err() == nil {
			t.Error("the process ended without an error, want it killed")
		}
	case <-ctx.Done():
		t.Fatal("the process lives on")
	}

	ctx, again := open(t, config)
	if got := sh(ctx, t, again, "cat /var/lib/file; ls /run"); got != "kept" {
		t.Errorf("/var and /run after the second opening: %q", got)
	}
}

func TestASandboxReapsOrphans(t *testing.T) {
	ctx, in := open(t, newConfig(t))
	sh(ctx, t, in, "(sh -c 'sleep 0.01; touch /run/done' &) &") // whose parent ends first
	for zombie := "unknown"; zombie != ""; {
		zombie = sh(ctx, t, in, "until [ -e /run/done ]; do :; done; grep -l '^State:.Z' /proc/[0-9]*/status || true")
		if ctx.Err() != nil {
			t.Fatalf("zombies: %s", zombie)
		}
	}
}

func TestASandboxThatCannotBeFurnishedSaysWhyAndIsGone(t *testing.T) {
	config := newConfig(t)
	config.Visible = []string{"/no/such/directory"}
	_, err := sandbox.Open(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), "show directories") {
		t.Errorf("error %v", err)
	}
	if pids, err := config.Cgroup.Processes(); err != nil || len(pids) > 0 {
		t.Errorf("processes %v are left, %v", pids, err)
	}
}

func TestRunReportsTheExitStatus(t *testing.T) {
	ctx, in := open(t, newConfig(t))
	err := in.Run(ctx, sandbox.Command{Path: "/bin/sh", Args: []string{"-c", "exit 7"}})
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("error %v", err)
	}
	if _, err := in.Start(sandbox.Command{Path: "/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that isn't there: %v", err)
	}
}
