// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"slices"
	"testing"
)

func TestWriteLog(t *testing.T) {
	for _, test := range []struct {
		name         string
		before       int // writes that the reader has seen
		after        int // writes since
		wantComplete bool
	}{
		{"nothing was ever written", 0, 0, true},
		{"nothing was written since", 5, 0, true},
		{"some were written since", 5, 3, true},
		{"the ring has begun again", writeLogSize - 1, 3, true},
		{"as many as are remembered", 7, writeLogSize, true},
		{"one more than is remembered", 7, writeLogSize + 1, false},
		{"the first reading after a long time", 0, 3 * writeLogSize, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var l writeLog
			var want, got []string
			for i := range test.before + test.after {
				l.add(fmt.Sprint("n", i))
				if i >= test.before {
					want = append(want, fmt.Sprint("n", i))
				}
			}
			now, complete := l.since(uint64(test.before), func(name string) { got = append(got, name) })
			if now != uint64(test.before+test.after) || complete != test.wantComplete {
				t.Errorf("since(%d) = %d, %t; want %d, %t",
					test.before, now, complete, test.before+test.after, test.wantComplete)
			}
			if !test.wantComplete {
				want = nil
			}
			if !slices.Equal(got, want) {
				t.Errorf("since(%d) has seen %v, want %v", test.before, got, want)
			}
		})
	}
}
