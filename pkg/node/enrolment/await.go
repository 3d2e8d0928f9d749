// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// systemctl runs systemctl.
func (e *Enrolment) systemctl(ctx context.Context, args ...string) error {
	if _, err := e.options.Host.Machine.Run(ctx, "systemctl", args...); err != nil {
		return fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// await waits until check returns nil, and returns its last error when that takes too long. It says
// why it still waits, when that takes longer than usual, and again whenever the reason changes.
func (e *Enrolment) await(ctx context.Context, limit time.Duration, what string,
	check func(context.Context) error) error {
	e.progress("wait until %s", what)
	end := time.NewTimer(limit)
	defer end.Stop()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	began, said := time.Now(), ""
	for {
		// Not until the end of the time: what that does to a call says less than an answer.
		checking, cancel := context.WithTimeout(ctx, callTimeout)
		err := check(checking)
		cancel()
		if err == nil {
			return nil
		}
		if stop := (*final)(nil); errors.As(err, &stop) {
			return stop.error
		}
		if why := err.Error(); time.Since(began) >= usualWait && why != said {
			e.progress("still waiting: %s", why)
			said = why
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), err)
		case <-end.C:
			return fmt.Errorf("waited %v until %s: %w", limit, what, err)
		case <-ticker.C:
		}
	}
}

// final is an error after which there is nothing to wait for.
type final struct{ error }

func (e *Enrolment) progress(format string, args ...any) {
	fmt.Fprintf(e.options.Progress, format+"\n", args...)
}
