// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"errors"
	"strings"
	"testing"
)

var errBroken, errLate = errors.New("broken"), errors.New("late")

func TestAConditionIsCheckedUntilItHolds(t *testing.T) {
	checks := 0
	err := Until(t.Context(), "three checks", func(context.Context) (bool, error) {
		checks++
		return checks == 3, nil
	})
	if err != nil || checks != 3 {
		t.Errorf("%d checks, %v", checks, err)
	}
}

func TestAnErrorOfTheConditionEndsTheWait(t *testing.T) {
	err := Until(t.Context(), "nothing", func(context.Context) (bool, error) { return false, errBroken })
	if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "wait for nothing: ") {
		t.Error(err)
	}
}

func TestTheErrorSaysWhatWasWaitedForAndWhyTheWaitEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Until(ctx, "the end", func(context.Context) (bool, error) {
		cancel(errLate)
		return false, nil
	})
	if !errors.Is(err, errLate) || !strings.HasPrefix(err.Error(), "wait for the end: ") {
		t.Error(err)
	}
}

func TestTriesGoOnUntilOneSucceeds(t *testing.T) {
	tries := 0
	err := Success(t.Context(), "the second try", func(context.Context) error {
		if tries++; tries < 2 {
			return errBroken
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
}

func TestTriesThatNeverSucceedSayWhyTheLastOneDidNot(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	tries := 0
	err := Success(ctx, "a success", func(ctx context.Context) error {
		if tries++; tries < 2 {
			return errBroken
		}
		cancel(errLate)
		return ctx.Err()
	})
	if !errors.Is(err, errLate) || !errors.Is(err, errBroken) || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
