// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheMedianIsInTheMiddle(t *testing.T) {
	for want, values := range map[float64][]float64{
		7: {7},
		2: {3, 1, 2},
		5: {9, 1, 2, 8},
	} {
		if got := median(values); got != want {
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
			lower, upper, ok := bounds(values)
			if ok != (test.left > 0) {
				t.Fatalf("bounds are there: %v", ok)
			}
			if ok && (lower != float64(test.left) || upper != float64(test.values+1-test.left)) {
				t.Errorf("bounds of 1 to %d: %v and %v, want number %d from either end", test.values, lower, upper, test.left)
			}
		})
	}
}

// rounds returns samples of 100 pods that took so many seconds, and as many of CPU.
func rounds(seconds ...float64) []Sample {
	samples := make([]Sample, len(seconds))
	for i, s := range seconds {
		samples[i] = Sample{Pods: 100, Seconds: s, CPUSeconds: s, Points: map[string]float64{"Filter": s}}
	}
	return samples
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	// The machine was slow in the second and the third round, for both.
	size := Size{Nodes: 3, Samples: map[string][]Sample{"ours": rounds(1, 10, 30, 2, 4), "theirs": rounds(0.5, 5, 15, 1, 2)}}
	r := New("", 5, []string{"ours", "theirs", "left out"}, []Comparison{
		{"ours", "theirs", 0.5}, {"theirs", "ours", 2.1}, {"ours", "left out", 1},
	}, []Size{size})
	want := []Ratio{
		{"ours", "theirs", throughput, 0.5, 0.5, 0.5, 0.5, Verdict{"holds"}},
		{"ours", "theirs", cpu, 0.5, 0.5, 0.5, 0.5, Verdict{"holds"}},
		{"theirs", "ours", throughput, 2, 2, 2, 2.1, Verdict{"DOES NOT HOLD"}},
		{"theirs", "ours", cpu, 2, 2, 2, 2.1, Verdict{"DOES NOT HOLD"}},
	}
	if diff := cmp.Diff(want, r.Sizes[0].Ratios); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
	if got := r.Sizes[0].way("ours"); got.PodsPerSecond != 25 || got.CPUPerPod != 40 || got.Points["Filter"] != 4 {
		t.Errorf("medians of ours: %+v", got)
	}
	if len(r.Sizes[0].Ways) != 2 {
		t.Errorf("ways: %+v, want none for what was not measured", r.Sizes[0].Ways)
	}
}

func TestFewRoundsDecideNothing(t *testing.T) {
	size := Size{Samples: map[string][]Sample{"ours": rounds(1, 1, 1, 1), "theirs": rounds(2, 2, 2, 2)}}
	r := New("", 4, []string{"ours", "theirs"}, []Comparison{{"ours", "theirs", 0.95}}, []Size{size})
	for _, q := range r.Sizes[0].Ratios {
		if q.Median != 2 || q.Verdict != open {
			t.Errorf("with four rounds: %v, median %v", q, q.Median)
		}
	}
}

func TestThePluginsTimeMayTripleWhileNodesGrowTenfold(t *testing.T) {
	own := func(nodes int, microseconds float64) Size {
		return Size{Nodes: nodes, Samples: map[string][]Sample{
			"ours": {{Pods: 1, Seconds: 1, OwnMicroseconds: microseconds}}, "theirs": {{Pods: 1, Seconds: 1}},
		}}
	}
	sometimes := func(nodes int, microseconds float64) Size {
		size := own(nodes, microseconds)
		unknown := Sample{Pods: 1, Seconds: 1}
		size.Samples["ours"] = append(size.Samples["ours"], unknown, unknown)
		return size
	}
	for name, test := range map[string]struct {
		sizes []Size
		want  []Growth
	}{
		"at the bound":                    {[]Size{own(500, 10), own(5000, 30)}, []Growth{{"ours", 3, 3, verdict(true)}}},
		"above it":                        {[]Size{own(5000, 31), own(500, 10)}, []Growth{{"ours", 3.1, 3, verdict(false)}}},
		"nothing to compare with":         {[]Size{own(100, 10), own(5000, 30)}, nil},
		"the small clusters alone":        {[]Size{own(100, 10), own(500, 30)}, nil},
		"rounds of which it is not known": {[]Size{sometimes(500, 10), sometimes(5000, 20)}, []Growth{{"ours", 2, 3, verdict(true)}}},
		"a time that was never measured":  {[]Size{own(500, 0), own(5000, 30)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := New("", 1, []string{"ours", "theirs"}, nil, test.sizes)
			if diff := cmp.Diff(test.want, r.Growths); diff != "" {
				t.Errorf("growths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheTableSaysWhatHoldsAndTheJSONHasEverySample(t *testing.T) {
	size := Size{Nodes: 100, Samples: map[string][]Sample{"ours": rounds(1, 1, 1, 1, 1), "theirs": rounds(0.9, 0.9, 0.9, 0.9, 0.9)}}
	r := New("2 CPUs", 5, []string{"ours", "theirs"}, []Comparison{{"ours", "theirs", 0.95}}, []Size{size})
	var table bytes.Buffer
	if err := r.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 CPUs; medians of 5 rounds", "ours / theirs, pods/s", "100 nodes: ours, CPU, of theirs: 0.90, at least 0.95 wanted: DOES NOT HOLD"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, &table)
		}
	}
	path := filepath.Join(t.TempDir(), "result.json")
	if err := r.WriteJSON(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
}
