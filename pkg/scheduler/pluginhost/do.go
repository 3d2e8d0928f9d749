// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"fmt"
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

// Do makes a call by running fn, unless something that the call is about has made the plugin fail.
// An error matches ErrNoAnswer when there is no answer; any other is the plugin's own.
//
// fn may go on after its time limit, so it may touch nothing but its own copies. ctx carries the
// logger; its end is not looked at, because upstream takes an error from a Filter that it has
// cancelled for a real one.
func Do[T any](ctx context.Context, p *Plugin, call *Call, fn func() (T, error)) (T, error) {
	if err := p.admit(ctx, call); err != nil {
		p.Recorder.Called(p.Name, call.Method, plugincall.OutcomeOf(err), 0)
		var none T
		return none, err
	}
	timeout := CallTimeout
	if p.BoundsItself {
		timeout = 0
	}
	result, err := plugincall.Do(ctx, p.caller, plugincall.Call{
		Method: call.Method, Timeout: timeout, Returned: func(took time.Duration) { p.returned(call, took) },
	}, fn)
	switch plugincall.OutcomeOf(err) {
	case plugincall.Panicked, plugincall.TimedOut:
		call.failed, call.failedHolder = err, call.holder.Load()
		return result, p.diagnoseFailure(ctx, call)
	case plugincall.NotReturned:
		return result, fmt.Errorf("%w; no pod is served before it returns: restart the scheduler if it does not", err)
	default:
		p.served(call)
		return result, err
	}
}
