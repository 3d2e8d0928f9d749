// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// Call is a call that has ended.
type Call struct {
	// Method is the full name in the call; clients can send any name.
	Method string
	// Code is the code of the answer. The runtime may use numbers without a name in gRPC.
	Code codes.Code
	// Took is the time from the call's beginning to its end.
	Took time.Duration
	// Waited is the part of Took that the proxy waited for the runtime. The proxy added the rest:
	// reading the call, its edit, and writing the replies, which a slow reader prolongs.
	Waited time.Duration
}

// upstreamCall is the runtime's side of a call, which measures how long its one reader waits.
type upstreamCall struct {
	grpc.ClientStream
	waited *time.Duration
}

func (u upstreamCall) Header() (metadata.MD, error) {
	defer addSince(u.waited, time.Now())
	return u.ClientStream.Header()
}

func (u upstreamCall) RecvMsg(message any) error {
	defer addSince(u.waited, time.Now())
	return u.ClientStream.RecvMsg(message)
}

func addSince(sum *time.Duration, start time.Time) { *sum += time.Since(start) }
