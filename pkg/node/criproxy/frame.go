// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/mem"
)

// frame is one message in wire format. It references the transport's own buffers, so the proxy does
// not copy messages.
type frame struct {
	data mem.BufferSlice
}

// free returns the buffers to the pool. The frame is empty afterwards.
func (f *frame) free() {
	f.data.Free()
	f.data = nil
}

// notifyFreed returns a channel that receives a value when nothing references the frame any more.
func (f *frame) notifyFreed() <-chan struct{} {
	freed := make(freedNotifier, 1)
	// grpc passes only buffers of more than a kilobyte to their pool; this one holds no data.
	empty := make([]byte, 0, 2<<10)
	f.data = append(slices.Clip(f.data), mem.NewBuffer(&empty, freed))
	return freed
}

// freedNotifier is the pool of one buffer that receives a value when the buffer is freed.
type freedNotifier chan struct{}

// Get implements mem.BufferPool.
func (freedNotifier) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool.
func (n freedNotifier) Put(*[]byte) { n <- struct{}{} }

// rawCodec moves frames between the wire and the proxy without decoding them.
type rawCodec struct{}

// Name is the name of the replaced codec, which content-type contains.
func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("marshal %T: the proxy sends frames only", v)
	}
	// grpc frees the returned buffers; the frame keeps its own reference.
	f.data.Ref()
	return f.data, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("unmarshal %T: the proxy receives frames only", v)
	}
	// grpc frees data when this returns.
	data.Ref()
	f.data = data
	return nil
}
