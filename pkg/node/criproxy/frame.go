// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// frame is one message as it came off the wire. It holds a reference to the transport's own
// buffers, so a message is never copied on its way through.
type frame struct {
	data mem.BufferSlice
}

// free gives the buffers back. The frame is empty afterwards.
func (f *frame) free() {
	f.data.Free()
	f.data = nil
}

// rawCodec moves frames between the wire and the proxy without looking at them.
type rawCodec struct{}

// Name is that of the codec it stands in for, which is what content-type carries.
func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("marshal %T: the proxy sends frames only", v)
	}
	// grpc frees what it is given here; the frame keeps its own reference.
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
