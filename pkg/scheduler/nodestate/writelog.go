// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import "sync"

// writeLogSize is how many writes are remembered: many more than there are between two scheduling
// cycles, but for those that follow a start.
const writeLogSize = 1024

// writeLog remembers which nodes were written last, so that one who keeps Snapshots of all nodes
// need not look at each. The zero value is empty.
type writeLog struct {
	mu    sync.Mutex
	names [writeLogSize]string // a ring: write number w is at w % writeLogSize
	count uint64               // writes ever
}

func (l *writeLog) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[l.count%writeLogSize] = name
	l.count++
}

// since calls seen with the name of each node that was written after the first `from` writes, and
// returns how many writes there are now. It calls nothing and returns false when that is too long
// ago to be known.
func (l *writeLog) since(from uint64, seen func(name string)) (now uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count-from > writeLogSize {
		return l.count, false
	}
	for w := from; w < l.count; w++ {
		seen(l.names[w%writeLogSize])
	}
	return l.count, true
}
