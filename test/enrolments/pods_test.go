// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolments

import "testing"

func TestACallThatAKillCutsOffIsNoRefusal(t *testing.T) {
	for message, want := range map[string]bool{
		"rpc error: code = Unavailable desc = error reading from server: read unix: connection reset by peer": true,
		"error reading from server: EOF":                             true,
		"rpc error: code = Canceled desc = context canceled":         true,
		"rpc error: code = FailedPrecondition desc = delete the pod": false,
	} {
		if got := cutOff(message); got != want {
			t.Errorf("%q was cut off: %t, want %t", message, got, want)
		}
	}
}
