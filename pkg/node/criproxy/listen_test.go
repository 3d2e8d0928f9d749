// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func mustListen(t *testing.T, path string) *Socket {
	t.Helper()
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// reaches reports whether a connection to path is accepted by listener.
func reaches(t *testing.T, path string, listener net.Listener) bool {
	t.Helper()
	client, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer client.Close()
	accepted := make(chan bool, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			conn.Close()
		}
		accepted <- err == nil
	}()
	return <-accepted
}

func TestSocketIsForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "kubecri.sock")
	defer mustListen(t, path).Close()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode(), os.ModeSocket|0o600; got != want {
		t.Errorf("mode %v, want %v", got, want)
	}
}

func TestReplacesTheSocketOfADeadProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubecri.sock")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	listener := mustListen(t, path)
	defer listener.Close()
	if !reaches(t, path, listener) {
		t.Error("the new listener cannot be reached")
	}
}

func TestSuccessorKeepsThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubecri.sock")
	first := mustListen(t, path)
	second := mustListen(t, path)
	defer second.Close()
	first.Close()
	if !reaches(t, path, second) {
		t.Error("the successor cannot be reached")
	}
}

func TestClosingRemovesTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubecri.sock")
	mustListen(t, path).Close()
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestDoesNotReplaceAFileThatIsNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if listener, err := Listen(path); err == nil {
		listener.Close()
		t.Fatal("listened over a regular file")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("file is now %q, %v", got, err)
	}
}

func TestSocketPath(t *testing.T) {
	for name, test := range map[string]struct{ endpoint, want string }{
		"a unix URL":                 {"unix:///run/x.sock", "/run/x.sock"},
		"a bare path":                {"/run/x.sock", "/run/x.sock"},
		"a path is cleaned":          {"unix:///run/../run//x.sock", "/run/x.sock"},
		"a relative path is refused": {"run/x.sock", ""},
		"a unix URL with a host":     {"unix://run/x.sock", ""},
		"TCP is refused":             {"tcp://127.0.0.1:1", ""},
		"nothing is refused":         {"", ""},
	} {
		got, err := SocketPath(test.endpoint)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}
