// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"sync"
	"testing"
)

func TestGetReturnsTheRequestedLength(t *testing.T) {
	pool := newFramePool()
	for range 2 {
		for _, length := range []int{0, 1, smallFrame, smallFrame + 1, frameSize - 1, frameSize,
			frameSize + 1, 1 << 20} {
			buffer := pool.Get(length)
			if len(*buffer) != length {
				t.Errorf("requested %d, got %d", length, len(*buffer))
			}
			// The transport may return a shorter slice than it got.
			*buffer = (*buffer)[:length/2]
			pool.Put(buffer)
		}
	}
}

func TestSmallFramesUseSmallBuffers(t *testing.T) {
	pool := newFramePool()
	large := pool.Get(frameSize)
	pool.Put(large)
	if got := pool.Get(smallFrame); cap(*got) > smallFrame {
		t.Errorf("a buffer of %d for a frame of %d", cap(*got), smallFrame)
	}
	if got := pool.Get(frameSize); got != large {
		t.Error("an idle buffer was not used again")
	}
}

func TestKeepsALimitedNumberOfBuffers(t *testing.T) {
	pool := newFramePool()
	var buffers []*[]byte
	for range idleFrames + 100 {
		buffers = append(buffers, pool.Get(frameSize))
	}
	for _, buffer := range buffers {
		pool.Put(buffer)
	}
	if got := len(pool.idle); got != idleFrames {
		t.Errorf("%d are idle, want %d", got, idleFrames)
	}
}

func TestBufferHasOneOwnerAtATime(t *testing.T) {
	pool := newFramePool()
	var users sync.WaitGroup
	for user := range byte(8) {
		users.Go(func() {
			for range 2000 {
				buffer := pool.Get(frameSize)
				(*buffer)[0] = user
				if (*buffer)[0] != user {
					t.Error("another goroutine wrote")
				}
				pool.Put(buffer)
			}
		})
	}
	users.Wait()
}
