// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// callLimit is how long one call into a plugin may take. Filter makes one call per plugin and
	// node.
	callLimit = time.Second

	// maxOverdue is how many calls of a plugin that is safe for concurrent use may hang before it
	// is not called any more: each keeps a goroutine. Filter makes 16 calls at a time.
	maxOverdue = 256
)

// ErrNoAnswer is matched by the errors that say that a plugin did not answer: it failed, or was not
// called because of an earlier failure. Another time it may answer. An error that a plugin returned
// is an answer.
var ErrNoAnswer = plugincall.ErrNoAnswer

// contained is one plugin, called such that nothing it does stops or ends the scheduler, and such
// that what makes it fail is kept from it. It is safe for concurrent use.
type contained struct {
	devicescheduler.DeviceScheduler
	clock    clock.PassiveClock
	recorder Recorder
	caller   *plugincall.Caller

	// What the plugin says of itself, asked once.
	name      string
	groups    bool // leaves placement to the group scheduler
	claimed   []types.ResourceName
	counted   []devicescheduler.CountedDevice
	kinds     *kinds                          // nil for a plugin that may have to do with everything
	allocator Allocator                       // nil for a plugin that is none
	afterWait devicescheduler.DeviceScheduler // nil for a plugin that has no pod wait
	words     devicescheduler.Words
	observer  *observer // nil for a plugin that keeps no counters of its own

	cachedAnswers

	// unavailable says that the plugin is not called for anybody: it is quarantined, or a call has
	// not returned.
	unavailable atomic.Bool
	keeps       atomic.Bool // something is kept from the plugin
	diagnosing  sync.Mutex  // held while probes find out what is to blame

	mu         sync.Mutex
	backOffs   backOffs
	quarantine quarantine
	overdue    int      // as the recorder knows it
	answered   [2]*Node // the last two nodes for which it answered a request

	undecided atomic.Pointer[call] // the last failed call of which it is not known what is to blame
}

// contain asks the plugin what it says of itself. A panic while asking is returned as an error.
func contain(named Named, clk clock.WithTicker, recorder Recorder, sizes sizes) (c *contained, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("ask %q for its name and abilities: panic: %v", named.File, r)
		}
	}()
	c = &contained{DeviceScheduler: named.Plugin, clock: clk, recorder: recorder, backOffs: backOffs{}}
	c.name = strings.ToValidUTF8(cmp.Or(c.GetName(), named.File), "\uFFFD") // labels of metrics take nothing else
	c.groups = c.UsingGroupScheduler()
	if claimer, ok := named.Plugin.(devicescheduler.ResourceClaimer); ok {
		c.claimed = slices.Clone(claimer.ClaimedResources())
	}
	if counter, ok := named.Plugin.(devicescheduler.DeviceCounter); ok {
		c.counted = slices.Clone(counter.CountedDevices())
	}
	if specialist, ok := named.Plugin.(devicescheduler.Specialist); ok {
		c.kinds = newKinds(specialist.Kinds())
	}
	if allocator, ok := named.Plugin.(Allocator); ok {
		c.allocator = allocator
	}
	if patient, ok := named.Plugin.(devicescheduler.Patient); ok {
		c.afterWait = patient.AfterWait()
	}
	c.detectCapabilities(named.Plugin, sizes)
	if describer, ok := named.Plugin.(devicescheduler.Describer); ok {
		c.words = describer.Words()
	}
	if counting, ok := named.Plugin.(devicescheduler.PodObserver); ok {
		c.observer = &observer{PodObserver: counting, reported: map[string]string{}}
	}
	safe, ok := named.Plugin.(devicescheduler.ConcurrentSafe)
	c.caller = plugincall.New(plugincall.Policy{
		Kind: "device scheduler", Clock: clk, MaxOverdue: maxOverdue,
		Observe: func(plugin, method string, took time.Duration, err error) {
			recorder.Called(plugin, method, plugincall.OutcomeOf(err), took)
		},
	}, c.name, ok && safe.ConcurrentSafe())
	return c, nil
}

// call is one call of a plugin's method, and what it is about: that is to blame when the call
// fails.
type call struct {
	method string
	// node is the name of the node that the plugin is called for, "" for none. state is the node's
	// state in calls that ask whether a request can be served on it; request is that request.
	node    string
	state   *Node
	request *request.Request
	// holders are the pods that the plugin is called for in turn, and at is the index of the one
	// that it is called for.
	holders []*Holder
	at      atomic.Int64

	failed   error    // why there is no answer
	failedAt int64    // what at was then
	hangs    *backOff // of what is to blame, while the call has not returned; guarded by the plugin's mutex
	returned bool     // after its limit; guarded too
}

// do makes a call by running fn, unless something that the call is about has made the plugin fail.
// fn may go on after its limit, so it may touch nothing but its own copies. ctx carries the logger;
// its end is not looked at, because upstream takes an error from a Filter that it has cancelled for
// a real one.
func do[T any](ctx context.Context, c *contained, of *call, fn func() (T, error)) (T, error) {
	if err := c.admit(ctx, of); err != nil {
		c.recorder.Called(c.name, of.method, plugincall.OutcomeOf(err), 0)
		var none T
		return none, err
	}
	limit := callLimit
	if c.allocator != nil { // which is built in, and bounds itself
		limit = 0
	}
	result, err := plugincall.Do(ctx, c.caller, plugincall.Call{
		Method: of.method, Limit: limit, Returned: func(took time.Duration) { c.returned(of, took) },
	}, fn)
	switch plugincall.OutcomeOf(err) {
	case plugincall.Panicked, plugincall.TimedOut:
		of.failed, of.failedAt = err, of.at.Load()
		return result, c.blame(ctx, of)
	case plugincall.NotReturned:
		return result, fmt.Errorf("%w; no pod is served before it returns: restart the scheduler if it does not", err)
	default:
		c.succeeded(of)
		return result, err
	}
}

// cause returns a failure's text without the plugin's name, shortened for a message.
func cause(err error) string {
	var failure *plugincall.Failure
	if errors.As(err, &failure) {
		return clip(failure.Text)
	}
	return clip(err.Error())
}
