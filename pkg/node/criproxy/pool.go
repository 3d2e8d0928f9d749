// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"sync"

	"google.golang.org/grpc/mem"
)

const (
	// frameSize is the maximum size of gRPC's HTTP/2 frames: all frames of a large message except
	// the last have it.
	frameSize = 16 << 10
	// smallFrame is the size up to which a frame gets a smaller buffer.
	smallFrame = 4 << 10
	// idleFrames is how many buffers the pool keeps: 8 MiB, enough for a list of 8,000 containers.
	// The garbage collector may free additional ones.
	idleFrames = 512
)

// framePool provides the transport's buffers for messages. grpc's own pool clears a buffer for each
// Get, and loses all buffers in a garbage collection, which slows down lists of containers.
// Clearing is not necessary, as the transport fills each buffer before any read.
type framePool struct {
	mu   sync.Mutex
	idle []*[]byte // of frameSize

	spare sync.Pool // the same
	small mem.BufferPool
}

func newFramePool() *framePool {
	return &framePool{small: mem.DefaultBufferPool()}
}

// Get implements mem.BufferPool. The buffer's content is arbitrary.
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
