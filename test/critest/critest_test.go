// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// ended returns the results of a side, of which each is written as spec: state message.
func ended(lines ...string) []Result {
	var results []Result
	for _, line := range lines {
		spec, how, _ := strings.Cut(line, ": ")
		state, message, _ := strings.Cut(how, " ")
		results = append(results, Result{Spec: spec, State: state, Message: message})
	}
	return results
}

// compared returns the comparison of a run of all specs, and of further runs of those that were
// unclear.
func compared(t *testing.T, runs ...[2][]Result) *Comparison {
	t.Helper()
	c := &Comparison{Runtime: cluster.Containerd24}
	c.add(regexp.MustCompile(""), runs[0][0], runs[0][1])
	for _, run := range runs[1:] {
		unclear := c.unclear()
		if len(unclear) == 0 {
			t.Fatal("nothing is unclear, but there is one more run")
		}
		c.addAgain(unclear, run[0], run[1])
	}
	return c
}

func TestTheVerdictIsThatOfBothSidesAndOfTheRunsAlone(t *testing.T) {
	side := func(lines ...string) []Result { return ended(lines...) }
	for name, test := range map[string]struct {
		runs [][2][]Result
		want Verdict
	}{
		"both pass": {[][2][]Result{{side("a: passed"), side("a: passed")}}, Passed},
		"both fail, each in its own words": {
			[][2][]Result{{side("a: failed at 10:00"), side("a: failed at 10:01")}}, Failed,
		},
		"both skip": {
			[][2][]Result{{side("a: skipped no AppArmor"), side("a: skipped no AppArmor")}}, Skipped,
		},
		"both skip, for different reasons": {
			[][2][]Result{{side("a: skipped no AppArmor"), side("a: skipped not supported")}}, Differs,
		},
		"one fails":                {[][2][]Result{{side("a: passed"), side("a: failed")}}, Differs},
		"one fails in another way": {[][2][]Result{{side("a: failed"), side("a: timedout")}}, Differs},
		"one has no result":        {[][2][]Result{{side("a: passed"), nil}}, Differs},
		"one fails, and then both pass": {[][2][]Result{
			{side("a: passed"), side("a: failed")}, {side("a: passed"), side("a: passed")},
			{side("a: passed"), side("a: passed")},
		}, Unsteady},
		"one fails again": {[][2][]Result{
			{side("a: passed"), side("a: failed")}, {side("a: passed"), side("a: passed")},
			{side("a: passed"), side("a: failed")},
		}, Differs},
		"one fails, then the other": {[][2][]Result{
			{side("a: passed"), side("a: failed")}, {side("a: failed"), side("a: passed")},
		}, Differs},
		"one fails, and then both do": {[][2][]Result{
			{side("a: passed"), side("a: failed")}, {side("a: failed"), side("a: failed")},
		}, Differs},
		"one has no result when it is run again": {[][2][]Result{
			{side("a: passed"), side("a: failed")}, {side("a: passed"), nil},
		}, Differs},
	} {
		t.Run(name, func(t *testing.T) {
			c := compared(t, test.runs...)
			if len(c.Specs) != 1 || c.Specs[0].Verdict != test.want {
				t.Errorf("verdict %+v, want %s", c.Specs, test.want)
			}
		})
	}
}

func TestOnlyADifferenceOrNothingAtAllIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		direct, kubecri []Result
		want            string
	}{
		"all the same": {
			ended("a: passed", "b: failed", "c: skipped"), ended("a: passed", "b: failed", "c: skipped"), "",
		},
		"a difference": {
			ended("a: passed", "b: failed"), ended("a: passed", "b: passed"), "containerd-2.4: 1 specs differ",
		},
		"nothing that passed": {ended("a: failed"), ended("a: failed"), "no spec passed"},
		"a spec on one side":  {ended("a: passed", "b: passed"), ended("a: passed"), "1 specs differ"},
		"a spec left out twice": {
			ended("a: passed", "benchmark about a: skipped"), ended("a: passed", "benchmark about a: skipped"), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := compared(t, [2][]Result{test.direct, test.kubecri}).Check()
			if test.want == "" && err != nil || test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestSpecsThatWereNotChosenAreNotCompared(t *testing.T) {
	both := ended("image a: passed", "image benchmark about b: skipped", "pod c: skipped",
		"pod benchmark about d: skipped")
	c := &Comparison{}
	c.add(regexp.MustCompile("^image"), both, both)
	var names []string
	for _, s := range c.Specs {
		names = append(names, s.Name+": "+said(s.Direct[0]))
	}
	want := []string{"image a: passed", "image benchmark about b: skipped: measures, tests nothing"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
}

func TestTheTableShowsBothSidesAndWhatWasSaid(t *testing.T) {
	c := compared(t,
		[2][]Result{
			ended("exec: passed", "logs: failed no line\nin the log", "mask: skipped not here", "port: passed",
				"stat: passed"),
			ended("exec: passed", "logs: failed no line", "mask: skipped not here", "port: failed reset",
				"stat: failed late"),
		},
		[2][]Result{ended("port: passed", "stat: passed"), ended("port: failed reset", "stat: passed")},
	)
	c.Seconds = 61.4
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`DIRECT         KUBECRI        SPEC (containerd-2.4)
passed         passed         exec
failed         failed         logs
skipped        skipped        mask
passed,passed  failed,failed  port
passed,passed  failed,passed  stat

Skipped on both sides:
  mask
    not here

Failed on both sides, which says nothing of kubecri:
  logs
    direct:  failed: no line
    kubecri: failed: no line

Differed once, and passed on both sides in %d more runs by themselves:
  stat
    direct:  passed
    kubecri: failed: late
    direct:  passed
    kubecri: passed

DIFFERENT:
  port
    direct:  passed
    kubecri: failed: reset
    direct:  passed
    kubecri: failed: reset

containerd-2.4: 1 specs passed on both sides, 1 failed on both, 1 were skipped, 1 unsteady, 1 differ; 61 s
`, repeats)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestTableAndJSONAreWrittenUnderTheRuntimesName(t *testing.T) {
	dir := t.TempDir()
	c := compared(t, [2][]Result{ended("a: passed"), ended("a: passed")})
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "containerd-2.4.json"))
	if err != nil {
		t.Fatal(err)
	}
	var read Comparison
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	if read.Runtime != c.Runtime || len(read.Specs) != 1 || read.Specs[0].Verdict != Passed ||
		read.Specs[0].Kubecri[0].State != "passed" {
		t.Errorf("JSON:\n%s", content)
	}
	if table, err := os.ReadFile(filepath.Join(dir, "containerd-2.4.txt")); err != nil ||
		!bytes.Contains(table, []byte("1 specs passed")) {
		t.Errorf("table, error %v:\n%s", err, table)
	}
}

func TestSpecsAreFoundAgainByTheirNames(t *testing.T) {
	specs := []*Spec{{Name: "when Policy=Merge (Default) it works"}, {Name: "b [Conformance]"}}
	focus := regexp.MustCompile(focusOn(specs))
	for _, s := range specs {
		if !focus.MatchString(allSpecs + s.Name) {
			t.Errorf("%s does not match %q", focus, s.Name)
		}
	}
	if focus.MatchString("when Policy=Merge Default it works") {
		t.Errorf("%s matches what it should not", focus)
	}
}

// sample is a report as ginkgo writes it, as far as it is read.
const sample = `[{"SpecReports": [
  {"LeafNodeType": "BeforeSuite", "State": "passed"},
  {"ContainerHierarchyTexts": ["[k8s.io] Streaming", "exec"], "LeafNodeType": "It", "LeafNodeText": "works",
   "State": "passed", "RunTime": 1500000000},
  {"ContainerHierarchyTexts": ["[k8s.io] AppArmor"], "LeafNodeType": "It", "LeafNodeText": "works",
   "State": "skipped", "Failure": {"Message": "not here"}}
]}]`

func TestAReportIsReadInTheOrderOfNames(t *testing.T) {
	results, err := decode([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{Spec: "AppArmor works", State: "skipped", Message: "not here"},
		{Spec: "Streaming exec works", State: "passed", Seconds: 1.5},
	}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestAReportThatShowsNothingIsAnError(t *testing.T) {
	for name, test := range map[string]struct{ report, want string }{
		"no report": {"", "read critest's report"},
		"no specs":  {"[]", "no specs"},
		"a suite that failed": {
			`[{"SpecReports": [
				{"LeafNodeType": "BeforeSuite", "State": "panicked", "Failure": {"Message": "no such file"}}]}]`,
			"BeforeSuite panicked: no such file",
		},
		"another kind of JSON": {`{"a": 1}`, "read critest's report"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := decode([]byte(test.report)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(sample))
	f.Fuzz(func(t *testing.T, content []byte) {
		results, err := decode(content)
		if (err == nil) != (len(results) > 0) {
			t.Errorf("%d results, error %v", len(results), err)
		}
	})
}
