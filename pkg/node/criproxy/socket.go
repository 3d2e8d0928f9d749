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

// Socket is a listener that is known by a path, until another one takes that.
type Socket struct {
	net.Listener
	path   string
	own    os.FileInfo
	remove sync.Once
}

// Close stops listening, and removes the path unless a successor has it.
func (s *Socket) Close() error {
	s.remove.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.own) {
			os.Remove(s.path)
		}
	})
	return s.Listener.Close()
}

// How often AwaitSuccessor looks at the path: rarely where changes of the directory are reported,
// as each look wakes an idle process, and more often on a node that has run out of inotify
// instances, which are few.
const (
	watchedInterval   = 10 * time.Second
	unwatchedInterval = 500 * time.Millisecond
)

// AwaitSuccessor returns true when another socket has taken the path, and false when ctx is done
// before that. From then on nobody new connects to this one.
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

// awaitSuccessor looks at the path now, at each change, and every interval.
func (s *Socket) awaitSuccessor(ctx context.Context, changes <-chan fsnotify.Event, interval time.Duration) bool {
	look := time.NewTicker(interval)
	defer look.Stop()
	for {
		if now, err := os.Lstat(s.path); err == nil && now.Mode().Type() == os.ModeSocket && !os.SameFile(now, s.own) {
			return true
		}
		select {
		case <-changes:
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
}

// Served reports whether some process serves the socket at path.
func Served(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	return err == nil && conn.Close() == nil
}
