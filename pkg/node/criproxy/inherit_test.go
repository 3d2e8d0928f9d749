// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// handedOver returns the socket of a listener, as systemd passes it. The listener lives until the
// test ends.
func handedOver(t *testing.T, network, address string) *os.File {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	file, err := listener.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestServesSystemdsSocketAndKeepsItOnClose(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubecri.sock")
	file := handedOver(t, "unix", path)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := inherit([]*os.File{file}, filepath.Join(dir, "link", "kubecri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if !reaches(t, path, listener) {
		t.Error("the listener cannot be reached")
	}
	listener.Close()
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("after the close: %v, %v", after, err)
	}
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("after the close clients cannot wait for the next process: %v", err)
	}
	client.Close()
}

func TestInheritsNothingWithoutSystemd(t *testing.T) {
	if listener, err := inherit(nil, "/run/x.sock"); listener != nil || err != nil {
		t.Errorf("%v, %v", listener, err)
	}
}

func TestRejectsOtherSocketsOfSystemd(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "kubecri.sock"), filepath.Join(dir, "other.sock")
	text, err := os.Create(filepath.Join(dir, "text"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		files []*os.File
		want  string
	}{
		"a socket at another path": {[]*os.File{handedOver(t, "unix", other)}, other},
		"a TCP socket":             {[]*os.File{handedOver(t, "tcp", "127.0.0.1:0")}, "127.0.0.1:"},
		"a file":                   {[]*os.File{text}, "ListenStream=" + path},
		"a second socket": {
			[]*os.File{handedOver(t, "unix", path), handedOver(t, "tcp", "127.0.0.1:0")}, "2 sockets",
		},
	} {
		listener, err := inherit(test.files, path)
		if listener != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; want an error with %q", name, listener, err, test.want)
		}
		for _, file := range test.files {
			if err := file.Close(); err == nil {
				t.Errorf("%s: %s was left open", name, file.Name())
			}
		}
	}
}
