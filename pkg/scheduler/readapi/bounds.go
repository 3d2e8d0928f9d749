// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubedevice/kubedevice/pkg/cache"
)

// What readers may cost. docs/scheduler-api.md has the same numbers.
const (
	// maxAtOnce is how many requests are answered at a time: they call plugins, as scheduling does.
	maxAtOnce = 4
	// perSecond and burst are how many requests each user may make.
	perSecond, burst = 5, 20
	// maxUsers is of how many users that is remembered.
	maxUsers = 1 << 10
	// maxRequest, maxPage and maxAnswer are in bytes: of a request's body, of the items of a list
	// beyond the first, and of an answer.
	maxRequest = 1 << 20
	maxPage    = 4 << 20
	maxAnswer  = 16 << 20
	// answerTime is how long an answer may take to be made.
	answerTime = 30 * time.Second
	// retryAfterSeconds is after which time who was refused may try again.
	retryAfterSeconds = 1
)

// bounds holds readers to what they may cost. It is safe for concurrent use.
type bounds struct {
	semaphore chan struct{} // holds a token for each request that is answered

	mu    sync.Mutex // held while a user's limiter is made
	users *cache.Cache[string, flowcontrol.RateLimiter]
}

func newBounds() *bounds {
	return &bounds{
		semaphore: make(chan struct{}, maxAtOnce), users: cache.New[string, flowcontrol.RateLimiter](maxUsers),
	}
}

// limiter returns the rate limiter of a user.
func (b *bounds) limiter(user string) flowcontrol.RateLimiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	limiter, ok := b.users.Get(user)
	if !ok {
		limiter = flowcontrol.NewTokenBucketRateLimiter(perSecond, burst)
		b.users.Add(user, limiter)
	}
	return limiter
}

// around answers with 429 what is too much at a time, with 413 what is too large, and leaves the
// rest to next.
func (b *bounds) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := ""
		if info, ok := apirequest.UserFrom(r.Context()); ok {
			user = info.GetName()
		}
		if !b.limiter(user).TryAccept() {
			fail(w, apierrors.NewTooManyRequests(fmt.Sprintf("user %q may make %d requests in a second; try again "+
				"later", user, perSecond), retryAfterSeconds))
			return
		}
		select {
		case b.semaphore <- struct{}{}:
			defer func() { <-b.semaphore }()
		default:
			fail(w, apierrors.NewTooManyRequests(fmt.Sprintf("the scheduler answers %d requests at a time; try again "+
				"later", maxAtOnce), retryAfterSeconds))
			return
		}
		if r.ContentLength > maxRequest {
			fail(w, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("it may have %d bytes", maxRequest)))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		buffered := &buffer{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(buffered, r)
		buffered.writeTo(w)
	})
}

// buffer keeps an answer until all of it is there.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool // it is too large
}

func (b *buffer) Header() http.Header    { return b.header }
func (b *buffer) WriteHeader(status int) { b.status = status }

func (b *buffer) Write(text []byte) (int, error) {
	if b.over = b.over || b.body.Len()+len(text) > maxAnswer; b.over {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return b.body.Write(text)
}

func (b *buffer) writeTo(w http.ResponseWriter) {
	if b.over {
		fail(w, problem(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"the answer has more than %d bytes; ask for less at a time", maxAnswer))
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(b.status)
	_, _ = b.body.WriteTo(w) // the reader is gone
}
