// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Socket is a listener at a path, until another socket replaces it there.
type Socket struct {
	net.Listener
	path   string
	own    os.FileInfo
	remove sync.Once
}

// Close stops listening, and removes the path unless it belongs to a successor.
func (s *Socket) Close() error {
	s.remove.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.own) {
			os.Remove(s.path)
		}
	})
	return s.Listener.Close()
}

// The intervals at which AwaitSuccessor checks the path: rarely with notifications of the
// directory, as each check wakes an idle process, and more often on a node without free inotify
// instances, which are limited.
const (
	watchedInterval   = 10 * time.Second
	unwatchedInterval = 500 * time.Millisecond
)

// AwaitSuccessor returns true when another socket has replaced this one at the path, and false when
// ctx is done before. After that, this socket gets no new connections.
func (s *Socket) AwaitSuccessor(ctx context.Context) bool {
	interval := unwatchedInterval
	var changes <-chan fsnotify.Event
	if watcher, err := fsnotify.NewWatcher(); err == nil {
		defer watcher.Close()
		if watcher.Add(filepath.Dir(s.path)) == nil {
			interval, changes = watchedInterval, watcher.Events
		}
	}
	return s.awaitSuccessor(ctx, changes, interval)
}

// awaitSuccessor checks the path now, at each change, and at every interval.
func (s *Socket) awaitSuccessor(ctx context.Context, changes <-chan fsnotify.Event, interval time.Duration) bool {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if now, err := os.Lstat(s.path); err == nil && now.Mode().Type() == os.ModeSocket && !os.SameFile(now, s.own) {
			return true
		}
		select {
		case <-changes:
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}

// Served reports whether a process serves the socket at path.
func Served(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	return err == nil && conn.Close() == nil
}
