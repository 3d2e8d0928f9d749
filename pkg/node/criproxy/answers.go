// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const (
	// answerWindow is how much of an answer the runtime may send before the proxy receives it, the
	// least that grpc accepts. For the answer that is received, grpc widens it to its length.
	answerWindow = 64 << 10
	// largeAnswers is how many answers above answerWindow the proxy holds at a time: this bounds
	// the answers of any length in memory. containerd sends up to 16 MiB, as for an exec probe with
	// so much output.
	largeAnswers = 4
	// largeAnswersEach is how many of them may be of the same method: exec probes with much output
	// must not delay the states of containers that the kubelet decides by.
	largeAnswersEach = largeAnswers - 1
	// slotTimeout is how long an answer counts at most. Without it, callers that do not read would
	// keep all others from receiving large answers.
	slotTimeout = 10 * time.Second
)

// answerSlots has the slots for large answers of unary methods. All methods are safe for concurrent
// use.
type answerSlots struct {
	all  chan struct{}
	each map[string]chan struct{} // by method
}

func newAnswerSlots(methods map[string]bool) *answerSlots {
	s := &answerSlots{all: make(chan struct{}, largeAnswers), each: map[string]chan struct{}{}}
	for method, unary := range methods {
		if unary {
			s.each[method] = make(chan struct{}, largeAnswersEach)
		}
	}
	return s
}

// take waits until an answer of the method, which has begun, may be received: until there is a slot
// for it, or it has arrived completely, within answerWindow, or complete is noWait. release gives
// the slot back. It may be called several times, and is nil for an answer that needs no slot. Once
// ctx is done, take returns its error as a status.
func (s *answerSlots) take(ctx context.Context, method string, complete completion) (release func(), err error) {
	select {
	case <-complete:
		return nil, nil
	default:
	}
	each := s.each[method]
	select {
	case each <- struct{}{}:
	case <-complete:
		return nil, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	select {
	case s.all <- struct{}{}:
	case <-complete:
		<-each
		return nil, nil
	case <-ctx.Done():
		<-each
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	giveBack := func() {
		<-s.all
		<-each
	}
	lapse := time.AfterFunc(slotTimeout, giveBack)
	return func() {
		if lapse.Stop() {
			giveBack()
		}
	}, nil
}

// completion can be received from when all of a call's answer has arrived.
type completion chan struct{}

// noWait is the completion of calls whose answers need no slot.
var noWait = func() completion {
	complete := make(completion)
	close(complete)
	return complete
}()

// completionKey is the key of a call's completion in its context.
type completionKey struct{}

// withCompletion returns the context for a call to the runtime that has the completion.
func withCompletion(ctx context.Context) (context.Context, completion) {
	complete := make(completion, 1)
	return context.WithValue(ctx, completionKey{}, complete), complete
}

// completions is the stats.Handler that notifies calls of their completion. grpc does not report it
// elsewhere before the answer is received.
type completions struct{}

var _ stats.Handler = completions{}

// HandleRPC implements stats.Handler.
func (completions) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ends := event.(*stats.InTrailer); !ends {
		return
	}
	if complete, ok := ctx.Value(completionKey{}).(completion); ok {
		select {
		case complete <- struct{}{}:
		default: // a repeated attempt of the same call
		}
	}
}

// TagRPC implements stats.Handler.
func (completions) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (completions) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (completions) HandleConn(context.Context, stats.ConnStats) {}
