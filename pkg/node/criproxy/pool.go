// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"sync"

	"google.golang.org/grpc/mem"
)

const (
	// frameSize is the most that gRPC puts in one HTTP/2 frame: of a large message, all frames but
	// the last have it.
	frameSize = 16 << 10
	// smallFrame is the size up to which a frame gets a buffer that fits it better.
	smallFrame = 4 << 10
	// idleFrames is how many buffers are kept for good: 8 MiB, enough for a list of 8,000
	// containers. More are kept for as long as the garbage collector likes.
	idleFrames = 512
)

// framePool is where the transport takes the buffers from that messages live in on their way
// through. grpc's own pool clears a buffer each time that it hands it out, and loses all when the
// garbage collector runs, which shows in lists of containers. The transport fills each buffer
// before anybody reads it.
type framePool struct {
	mu   sync.Mutex
	idle []*[]byte // of frameSize

	spare sync.Pool // the same
	small mem.BufferPool
}

func newFramePool() *framePool {
	return &framePool{small: mem.DefaultBufferPool()}
}

// Get implements mem.BufferPool. What the buffer holds is anything.
func (p *framePool) Get(length int) *[]byte {
	if length <= smallFrame || length > frameSize {
		return p.small.Get(length)
	}
	buffer := p.take()
	if buffer == nil {
		var spare bool
		if buffer, spare = p.spare.Get().(*[]byte); !spare {
			fresh := make([]byte, frameSize)
			buffer = &fresh
		}
	}
	*buffer = (*buffer)[:length]
	return buffer
}

// take returns an idle buffer, or nil.
func (p *framePool) take() *[]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	buffer := p.idle[last]
	p.idle = p.idle[:last]
	return buffer
}

// Put implements mem.BufferPool.
func (p *framePool) Put(buffer *[]byte) {
	if cap(*buffer) != frameSize {
		p.small.Put(buffer)
		return
	}
	p.mu.Lock()
	room := len(p.idle) < idleFrames
	if room {
		p.idle = append(p.idle, buffer)
	}
	p.mu.Unlock()
	if !room {
		p.spare.Put(buffer)
	}
}
