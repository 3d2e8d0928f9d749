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
	// Method is the full name that the caller used; there may be any number of them.
	Method string
	// Code is what the caller was answered. The runtime may answer with numbers that gRPC has no
	// names for.
	Code codes.Code
	// Took is all the time from the call's beginning to its end.
	Took time.Duration
	// Waited is how much of Took was spent waiting for the runtime. The rest is what the proxy
	// added: reading the call, its edit, and writing the replies, which a slow reader prolongs.
	Waited time.Duration
}

// upstreamCall is the runtime's side of a call, which notes how long the runtime lets its one
// reader wait.
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
