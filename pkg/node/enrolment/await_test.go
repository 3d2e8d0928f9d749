// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestALongWaitSaysWhyAndAgainWhenTheReasonChanges(t *testing.T) {
	for name, test := range map[string]struct {
		reasons map[time.Duration]string // from a time after its begin on; "" when it is over
		want    []string
	}{
		"a short one says nothing": {
			map[time.Duration]string{0: "it starts", 3 * time.Second: ""},
			[]string{"wait until it is ready"},
		},
		"one reason is said once": {
			map[time.Duration]string{0: "it starts", 20 * time.Second: ""},
			[]string{"wait until it is ready", "still waiting: it starts"},
		},
		"two reasons": {
			map[time.Duration]string{
				0: "it starts", 10 * time.Second: "it listens, and says nothing", 20 * time.Second: "",
			},
			[]string{
				"wait until it is ready", "still waiting: it starts", "still waiting: it listens, and says nothing",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said lines
				e := New(Options{Progress: &said})
				began := time.Now()
				err := e.await(t.Context(), time.Minute, "it is ready", func(context.Context) error {
					var latest time.Duration
					for at := range test.reasons {
						if at <= time.Since(began) {
							latest = max(latest, at)
						}
					}
					if test.reasons[latest] == "" {
						return nil
					}
					return errors.New(test.reasons[latest])
				})
				if err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(test.want, []string(said)); diff != "" {
					t.Errorf("what it says (-want +got):\n%s", diff)
				}
			})
		})
	}
}
