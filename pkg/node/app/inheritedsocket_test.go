// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// startWithSocket starts kubecri as systemd does that has a socket for it. See startKubecri.
func startWithSocket(t *testing.T, socket *os.File, args ...string) (command *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	// The shell knows the process's number before kubecri runs in it.
	command = exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, os.Args[0]}, args...)...)
	command.Env = append(os.Environ(), "LISTEN_FDS=1")
	command.ExtraFiles = []*os.File{socket} // number 3
	return command, startKubecri(t, command)
}

// startKubecri starts the command, which runs this program, as kubecri, and ends it when the test
// ends. stderr may be read when it has ended.
func startKubecri(t *testing.T, command *exec.Cmd) (stderr *bytes.Buffer) {
	t.Helper()
	command.Env = append(command.Environ(), asKubecri+"=1")
	stderr = &bytes.Buffer{}
	command.Stderr = stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if command.ProcessState == nil {
			command.Process.Kill() //nolint:errcheck // it may have ended
			command.Wait()         //nolint:errcheck // it was killed
		}
		if t.Failed() {
			t.Logf("kubecri %d: %s", command.Process.Pid, stderr)
		}
	})
	return stderr
}

// askVersion asks the runtime for its version, over that connection.
func askVersion(t *testing.T, over net.Conn) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///kubecri", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return over, nil }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	return err
}

func TestAKillLeavesTheSocketWithSystemdAndCallsWaitForTheNextKubecri(t *testing.T) {
	dir := t.TempDir()
	startRuntime(t, filepath.Join(dir, "runtime.sock"))
	path := filepath.Join(dir, "kubecri.sock")
	systemd, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	socket, err := systemd.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	connect := func() net.Conn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("the socket refuses: %v", err)
		}
		return conn
	}
	args := []string{"--container-runtime-endpoint=unix://" + path, "--cri-upstream=unix://" + filepath.Join(dir,
		"runtime.sock"),
		"--state-dir=" + filepath.Join(dir, "state"), "--cridevices=" + filepath.Join(dir, "no-plugins"),
		"--metrics-bind-address=",
		"--hostname-override=node-1"}

	early := connect()
	first, _ := startWithSocket(t, socket, args...)
	if err := askVersion(t, early); err != nil {
		t.Fatalf("a call from before the first kubecri: %v", err)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.Wait() //nolint:errcheck // it was killed

	waiting := connect()
	second, _ := startWithSocket(t, socket, args...)
	if err := askVersion(t, waiting); err != nil {
		t.Errorf("a call from after the kill: %v", err)
	}
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket was removed or replaced: %v, %v", after, err)
	}
	connect().Close()
}

func TestASocketThatIsNotTheKubeletsEndsKubecriWithTheReason(t *testing.T) {
	dir := t.TempDir()
	systemd, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "other.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	socket, err := systemd.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	command, stderr := startWithSocket(t, socket, "--container-runtime-endpoint=unix://"+filepath.Join(dir,
		"kubecri.sock"), "--state-dir="+dir)
	if err := command.Wait(); err == nil || !bytes.Contains(stderr.Bytes(), []byte("ListenStream=")) {
		t.Errorf("%v: %s", err, stderr)
	}
}
