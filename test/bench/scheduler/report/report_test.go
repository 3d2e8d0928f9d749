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

// rounds returns what was measured when 100 pods took so many seconds, and as many of CPU.
func rounds(seconds ...float64) Measured {
	var m Measured
	for _, s := range seconds {
		m.Samples = append(m.Samples, Sample{Pods: 100, Seconds: s, CPUSeconds: s})
	}
	return m
}

func TestBatchesAddUpToASample(t *testing.T) {
	got := Sample{Pods: 90, Seconds: 0.5, CPUSeconds: 0.25}.Plus(Sample{Pods: 10, Seconds: 1.5, CPUSeconds: 0.75})
	if diff := cmp.Diff(Sample{Pods: 100, Seconds: 2, CPUSeconds: 1}, got); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
	if got.PodsPerSecond() != 50 || got.CPUPerPod() != 10 {
		t.Errorf("%v pods a second, %v ms of CPU per pod, want 50 and 10", got.PodsPerSecond(), got.CPUPerPod())
	}
}

// What questions cost is not what pods cost.
func TestTheCPUOfPodsHasNoGoalWithWhatIfs(t *testing.T) {
	pair := Pair{Comparison{"asked", "alone", 0.95}, rounds(2, 2, 2, 2, 2), rounds(1, 1, 1, 1, 1), 7}
	r := New("", 5, []Size{{Nodes: 3, Pairs: []Pair{pair}}}).Sizes[0].Ratios
	for i, want := range []string{
		"asked, pods/s, of alone: 0.500, at least 0.95 wanted: DOES NOT HOLD",
		"asked, CPU, of alone: median 0.500: no goal: that of what-ifs is in it, 7 in all",
	} {
		if got := r[i].String(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	// The machine was slow in the second and the third round, for both.
	fast, slow := rounds(0.5, 5, 15, 1, 2), rounds(1, 10, 30, 2, 4)
	behind, ahead := Comparison{"ours", "theirs", 0.5}, Comparison{"theirs", "ours", 2.1}
	r := New("", 5, []Size{{Nodes: 3, Pairs: []Pair{{behind, slow, fast, 0}, {ahead, fast, slow, 0}}}})
	want := []Ratio{
		{behind, throughput, 0.5, 0.5, 0.5, Verdict{"holds"}},
		{behind, cpu, 0.5, 0.5, 0.5, Verdict{"holds"}},
		{ahead, throughput, 2, 2, 2, Verdict{"DOES NOT HOLD"}},
		{ahead, cpu, 2, 2, 2, Verdict{"DOES NOT HOLD"}},
	}
	if diff := cmp.Diff(want, r.Sizes[0].Ratios); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
}

func TestAWayIsSummedUpOverAllItsComparisons(t *testing.T) {
	first, second := rounds(1, 2), rounds(4, 5, 50)
	first.Points, second.Points = map[string]float64{"Filter": 1}, map[string]float64{"Filter": 2, "Score": 7}
	first.OwnPart, second.OwnPart = 0.002, 0.001
	first.Memory, second.Memory = Memory{90, 70, 30}, Memory{120, 100, 60}
	unknown := rounds(4, 4)
	unknown.Memory = Memory{120, 100, 60}
	got := variantsOf([]Pair{
		{Comparison{"ours", "theirs", 1}, first, rounds(8), 0},
		{Comparison{"other", "theirs", 1}, rounds(10), rounds(16), 0},
		{Comparison{"ours", "third", 3}, second, rounds(20), 0},
		{Comparison{"ours", "fourth", 3}, unknown, rounds(25), 0},
	})
	none := map[string]float64{}
	want := []VariantResult{
		{"ours", 25, 40, 40, Memory{110, 90, 50}, map[string]float64{"Filter": 1.5, "Score": 7}},
		{"theirs", 9.375, 120, 0, Memory{}, none},
		{"other", 10, 100, 0, Memory{}, none},
		{"third", 5, 200, 0, Memory{}, none},
		{"fourth", 4, 250, 0, Memory{}, none},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variants (-want +got):\n%s", diff)
	}
}

func TestFewRoundsDecideNothing(t *testing.T) {
	r := New("", 4, []Size{{Pairs: []Pair{{Comparison{"ours", "theirs", 0.95}, rounds(1, 1, 1, 1),
		rounds(2, 2, 2, 2), 0}}}})
	if len(r.Sizes[0].Ratios) != 2 {
		t.Fatalf("ratios: %v, want one of throughput and one of CPU", r.Sizes[0].Ratios)
	}
	for _, q := range r.Sizes[0].Ratios {
		if q.Median != 2 || q.Verdict != open {
			t.Errorf("with four rounds: %v, median %v", q, q.Median)
		}
	}
}

func TestThePluginsTimeMayTripleWhileNodesGrowTenfold(t *testing.T) {
	own := func(nodes int, part float64) Size {
		ours := rounds(1)
		ours.OwnPart = part
		return Size{Nodes: nodes, Pairs: []Pair{{Comparison{"ours", "theirs", 1}, ours, rounds(1), 0}}}
	}
	for name, test := range map[string]struct {
		sizes []Size
		want  []Growth
	}{
		"at the bound": {
			[]Size{own(500, 0.01), own(5000, 0.03)}, []Growth{{"ours", 3, 3, verdict(true)}},
		},
		"above it": {
			[]Size{own(5000, 0.031), own(500, 0.01)}, []Growth{{"ours", 3.1, 3, verdict(false)}},
		},
		"nothing to compare with":        {[]Size{own(100, 0.01), own(5000, 0.03)}, nil},
		"the small clusters alone":       {[]Size{own(100, 0.01), own(500, 0.03)}, nil},
		"a time that was never measured": {[]Size{own(500, 0), own(5000, 0.03)}, nil},
		"one that was not, with many":    {[]Size{own(500, 0.01), own(5000, 0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := New("", 1, test.sizes)
			if diff := cmp.Diff(test.want, r.Growths); diff != "" {
				t.Errorf("growths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMemoryHasABoundWithFewAndWithManyNodes(t *testing.T) {
	for name, test := range map[string]struct {
		nodes      int
		own, other float64
		want       []Footprint
	}{
		"few, at the bound":  {500, 228, 100, []Footprint{{Most: 228, Verdict: verdict(true)}}},
		"few, above it":      {500, 229, 100, []Footprint{{Most: 228, Verdict: verdict(false)}}},
		"many, at the bound": {5000, 1200, 1000, []Footprint{{Most: 1200, Verdict: verdict(true)}}},
		"many, above it":     {5000, 1201, 1000, []Footprint{{Most: 1200, Verdict: verdict(false)}}},
		"a size without one": {100, 5000, 100, nil},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := rounds(1), rounds(1)
			own.Memory.Resident, other.Memory.Resident = test.own, test.other
			for i := range test.want {
				test.want[i].Comparison = Comparison{"ours", "theirs", 1}
				test.want[i].Own, test.want[i].Other = own.Memory, other.Memory
			}
			pair := Pair{Comparison{"ours", "theirs", 1}, own, other, 0}
			r := New("", 1, []Size{{Nodes: test.nodes, Pairs: []Pair{pair}}})
			if diff := cmp.Diff(test.want, r.Sizes[0].Footprints); diff != "" {
				t.Errorf("footprints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheTableSaysWhatHoldsAndTheJSONHasEverySample(t *testing.T) {
	pair := Pair{Comparison{"ours", "theirs", 0.95}, rounds(1, 1, 1, 1, 1), rounds(0.9, 0.9, 0.9, 0.9, 0.9), 0}
	r := New("2 CPUs", 5, []Size{{Nodes: 100, Full: 50, Pairs: []Pair{pair}}, {Nodes: 500}})
	var table bytes.Buffer
	if err := r.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 CPUs; medians of 5 rounds", "ours / theirs, pods/s", "500 nodes, paired",
		"100 nodes, 50 full: ours, CPU, of theirs: 0.900, at least 0.95 wanted: DOES NOT HOLD"} {
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
	if diff := cmp.Diff([]Pair{pair}, back.Sizes[0].Pairs); diff != "" {
		t.Errorf("pairs read back (-measured +read):\n%s", diff)
	}
}
