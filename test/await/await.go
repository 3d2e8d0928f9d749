// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package await waits for what nothing announces. A test that can watch an object, or receive from
// a channel, does that instead.
package await

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Period is the time between two checks of a condition.
const Period = 50 * time.Millisecond

// Until checks at once, and then every Period, whether a condition holds. It returns nil when it
// does. It returns the condition's error as soon as there is one, or the cause for which ctx ended,
// both with what, which completes the sentence "wait for ...".
func Until(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextCancel(ctx, Period, true, holds)
	if wait.Interrupted(err) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// Success tries at once, and then every Period, until there is no error. When ctx ends first, it
// returns its cause and the last error, with what as in Until.
func Success(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := Until(ctx, what, func(ctx context.Context) (bool, error) {
		if err := try(ctx); err != nil {
			// What ctx interrupts says nothing about what it waited for.
			if last == nil || ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
