// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package statistics

import "testing"

func TestTheMedianIsInTheMiddle(t *testing.T) {
	for want, values := range map[float64][]float64{
		7: {7},
		2: {3, 1, 2},
		5: {9, 1, 2, 8},
	} {
		if got := Median(values); got != want {
			t.Errorf("median of %v: %v, want %v", values, got, want)
		}
	}
}

func TestBoundsAreThoseOfTheSignTest(t *testing.T) {
	for name, test := range map[string]struct {
		values, left int // how many values lie outside of each bound, and the bound itself
	}{
		"four values have none":                 {4, 0},
		"five: 1 in 32 that all are above":      {5, 1},
		"seven: 1 in 128":                       {7, 1},
		"eight: 9 in 256":                       {8, 2},
		"twenty: the sixth, with 2.07 %":        {20, 6},
		"a hundred: the forty-second, 4.43 %":   {100, 42},
		"a thousand: nothing underflows to 0 %": {1000, 474},
	} {
		t.Run(name, func(t *testing.T) {
			values := make([]float64, test.values)
			for i := range values { // 1, 2, 3, … in another order
				values[(i*7)%test.values] += float64(i + 1)
			}
			if test.values%7 == 0 {
				for i := range values {
					values[i] = float64(test.values - i)
				}
			}
			lower, upper, ok := Bounds(values)
			if ok != (test.left > 0) {
				t.Fatalf("bounds are there: %v", ok)
			}
			if ok && (lower != float64(test.left) || upper != float64(test.values+1-test.left)) {
				t.Errorf("bounds of 1 to %d: %v and %v, want number %d from either end", test.values, lower,
					upper, test.left)
			}
		})
	}
}
