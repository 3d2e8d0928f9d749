// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
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

// lookInterval is the pause between two looks at who has the path. Looking costs a microsecond, and works where a node has
// run out of inotify instances, which are few.
const lookInterval = 100 * time.Millisecond

// AwaitSuccessor returns true when another socket has taken the path, and false when ctx is done before that. From then on
// nobody new connects to this one.
func (s *Socket) AwaitSuccessor(ctx context.Context) bool {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
		if now, err := os.Lstat(s.path); err == nil && now.Mode().Type() == os.ModeSocket && !os.SameFile(now, s.own) {
			return true
		}
	}
}

// Served reports whether some process serves the socket at path.
func Served(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	return err == nil && conn.Close() == nil
}
