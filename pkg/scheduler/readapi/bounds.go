// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubedevice/kubedevice/pkg/cache"
)

// Limits for readers. docs/reference/scheduler-api.md has the same numbers.
const (
	// maxConcurrent is how many answers are made at a time: they call plugins, as scheduling does.
	maxConcurrent = 4
	// maxInFlight is how many requests may be in flight, from their first byte to the last byte of
	// their answer: each takes memory. maxOfUser is how many of them one user may have.
	maxInFlight, maxOfUser = 16, 3
	// perSecond and burst are how many requests each user may make.
	perSecond, burst = 5, 20
	// maxUsers is how many users have a rate limiter.
	maxUsers = 1 << 10
	// maxRequest, maxPage and maxAnswer are the maximum bytes of a request's body, of the items of
	// a list beyond the first, and of an answer.
	maxRequest = 1 << 20
	maxPage    = 4 << 20
	maxAnswer  = 16 << 20
	// answerTimeout is the timeout of making an answer.
	answerTimeout = 30 * time.Second
	// transferTimeout is the timeout of receiving a request's body, and of sending its answer.
	transferTimeout = 30 * time.Second
	// retryAfterSeconds is the time after which a rejected client may retry.
	retryAfterSeconds = 1
)

// bounds enforces the limits for readers. It is safe for concurrent use.
type bounds struct {
	answering chan struct{} // holds a token for each answer under way

	mu       sync.Mutex // guards the rest
	users    *cache.Cache[string, flowcontrol.RateLimiter]
	inFlight map[string]int // requests, by user; all that are not 0
	total    int            // of inFlight
}

func newBounds() *bounds {
	return &bounds{
		answering: make(chan struct{}, maxConcurrent), inFlight: map[string]int{},
		users: cache.New[string, flowcontrol.RateLimiter](maxUsers),
	}
}

// limit answers with 429 to too many requests, with 413 to too large ones, with 408 to too slow
// ones, and passes all others to next. A slow connection does not block requests of others: limit
// calls next after it has received the request, and next returns before limit sends the answer.
func (b *bounds) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Servers support deadlines, the recorders of tests do not.
		connection := http.NewResponseController(w)
		_ = connection.SetReadDeadline(time.Now().Add(transferTimeout))
		leave, refused := b.enter(userOf(r))
		if refused != nil {
			fail(w, refused)
			return
		}
		defer leave()
		body, refused := receive(w, r)
		if refused != nil {
			fail(w, refused)
			return
		}
		_ = connection.SetReadDeadline(time.Time{}) // a read that fails would end the answer's context
		answer, refused := b.answer(next, w.Header(), r, body)
		if refused != nil {
			fail(w, refused)
			return
		}
		_ = connection.SetWriteDeadline(time.Now().Add(transferTimeout))
		answer.writeTo(w)
	})
}

func userOf(r *http.Request) string {
	if info, ok := apirequest.UserFrom(r.Context()); ok {
		return info.GetName()
	}
	return ""
}

// enter counts a request of a user as in flight, until leave is called.
func (b *bounds) enter(user string) (leave func(), refused *apierrors.StatusError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.limiter(user).TryAccept():
		return nil, tooMany("user %q may make %d requests in a second", user, perSecond)
	case b.inFlight[user] >= maxOfUser:
		return nil, tooMany("user %q may have %d requests in flight", user, maxOfUser)
	case b.total >= maxInFlight:
		return nil, tooMany("the scheduler has %d requests in flight, as many as it may", maxInFlight)
	}
	b.inFlight[user]++
	b.total++
	return func() { b.leave(user) }, nil
}

func (b *bounds) leave(user string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	if b.inFlight[user]--; b.inFlight[user] == 0 {
		delete(b.inFlight, user)
	}
}

// limiter returns the rate limiter of a user.
func (b *bounds) limiter(user string) flowcontrol.RateLimiter {
	limiter, ok := b.users.Get(user)
	if !ok {
		limiter = flowcontrol.NewTokenBucketRateLimiter(perSecond, burst)
		b.users.Add(user, limiter)
	}
	return limiter
}

// tooMany returns the error for a request that the client may retry.
func tooMany(format string, args ...any) *apierrors.StatusError {
	return apierrors.NewTooManyRequests(fmt.Sprintf(format, args...)+"; try again later", retryAfterSeconds)
}

// receive reads the body of a request.
func receive(w http.ResponseWriter, r *http.Request) ([]byte, *apierrors.StatusError) {
	if r.ContentLength > maxRequest {
		return nil, tooLarge()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var exceeded *http.MaxBytesError
	switch {
	case errors.As(err, &exceeded):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem(http.StatusRequestTimeout, metav1.StatusReasonTimeout,
			"the request's body did not arrive within %v", transferTimeout)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the request's body: %v", err))
	}
	return body, nil
}

func tooLarge() *apierrors.StatusError {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("it may have %d bytes", maxRequest))
}

// answer makes the answer to a request with this body, unless too many answers are under way.
func (b *bounds) answer(
	next http.Handler, header http.Header, r *http.Request, body []byte,
) (*buffer, *apierrors.StatusError) {
	select {
	case b.answering <- struct{}{}:
		defer func() { <-b.answering }()
	default:
		return nil, tooMany("the scheduler answers %d requests at a time", maxConcurrent)
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	buffered := &buffer{header: header, status: http.StatusOK}
	next.ServeHTTP(buffered, r)
	return buffered, nil
}

// buffer collects an answer until it is complete.
type buffer struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	tooLarge bool // it is too large
}

func (b *buffer) Header() http.Header    { return b.header }
func (b *buffer) WriteHeader(status int) { b.status = status }

func (b *buffer) Write(text []byte) (int, error) {
	if b.tooLarge = b.tooLarge || b.body.Len()+len(text) > maxAnswer; b.tooLarge {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return b.body.Write(text)
}

func (b *buffer) writeTo(w http.ResponseWriter) {
	if b.tooLarge {
		fail(w, problem(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"the answer has more than %d bytes; request less at a time", maxAnswer))
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(b.status)
	_, _ = b.body.WriteTo(w) // the client has gone
}
