// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSocketDetectsOnlyItsSuccessor(t *testing.T) {
	for name, await := range map[string]func(*Socket, context.Context) bool{
		"with notifications": (*Socket).AwaitSuccessor,
		"without notifications": func(s *Socket, ctx context.Context) bool {
			return s.awaitSuccessor(ctx, nil, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubecri.sock")
			first := mustListen(t, path)
			defer first.Close()
			succeeded := make(chan bool, 1)
			go func() { succeeded <- await(first, testContext(t)) }()
			// A path that is missing, or has another file for a short time, has no successor.
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			select {
			case <-succeeded:
				t.Fatal("taken for succeeded by a file")
			case <-time.After(100 * time.Millisecond):
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			defer mustListen(t, path).Close()
			if !<-succeeded {
				t.Error("the successor was not noticed")
			}
		})
	}
}

func TestAwaitSuccessorEndsWithItsContext(t *testing.T) {
	socket := mustListen(t, filepath.Join(t.TempDir(), "kubecri.sock"))
	defer socket.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if socket.AwaitSuccessor(ctx) {
		t.Error("reports a successor without one")
	}
}

func TestServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubecri.sock")
	check := func(when string, want bool) {
		t.Helper()
		if got := Served(t.Context(), path); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	check("before a process listens", false)
	socket := mustListen(t, path)
	check("while a process listens", true)
	if err := socket.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	check("after the process has died", false)
}
