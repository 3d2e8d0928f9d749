// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// oneAttempt is a group with an attempt; TEXT is in the place of something more of the attempt.
const oneAttempt = `
title: Some
modes: [cri]
families:
- who: tenant
  defence: policies, seals
  expect:
    with policies: {outcome: refused by the API server, says: forbidden}
  with: {node: '${forged}'}
  pod: {metadata: {name: one}, spec: {nodeName: '${node}'}}
  steps: [create pod, await running]
  attempts:
  - id: one
    what: tries
    expect: {seals alone: {outcome: refused by the node, says: not here}}
TEXT
`

func TestAnAttemptHasWhatItsFamilyHas(t *testing.T) {
	attempts, err := parse([]byte(strings.ReplaceAll(oneAttempt, "TEXT", "    without: {how: elsewhere}")))
	if err != nil {
		t.Fatal(err)
	}
	policy := Want{RefusedByAPIServer, "forbidden"}
	want := &Attempt{
		ID: "one", Who: Tenant, What: "tries", Defence: Policies, Modes: []cluster.Mode{cluster.ModeCRI}, group: "Some",
		Want: map[Setting]Want{Both: policy, PoliciesAlone: policy, SealsAlone: {RefusedByNode, "not here"}},
		NRI:  map[Setting]Want{}, Off: Off{How: "elsewhere"},
	}
	got := attempts[0]
	got.Try, got.Off.Try = nil, nil
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Attempt{})); diff != "" {
		t.Error(diff)
	}
}

func TestFilesOfAttemptsAreReadStrictly(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a field that attempts do not have": {"    wants: nothing", `unknown field "wants"`},
		"a field that pods do not have":     {"    pod: {spec: {node: x}}", `unknown field "node"`},
		"a verb that is not there":          {"    steps: [create nothing]", `no verb "create nothing"`},
		"two verbs in a step":               {"    steps: [{create pod: {}, await device: {}}]", "2 verbs, want one"},
		"arguments of another verb":         {"    steps: [create pod: {call: x}]", `unknown field "call"`},
		"a variable that is not there":      {"    with: {node: '${nowhere}'}", `no variable "nowhere"`},
		"a setting that is not there":       {"    expect: {never: {outcome: succeeds}}", `"never" is no setting`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(oneAttempt, "TEXT", test.text)
			if strings.HasPrefix(test.text, "    expect") {
				text = strings.ReplaceAll(oneAttempt, "    expect: {seals alone", test.text+"\n#")
				text = strings.ReplaceAll(text, "TEXT", "")
			}
			if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %s", err, test.want)
			}
		})
	}
}

func TestEachFileOfAttemptsIsATable(t *testing.T) {
	entries, err := groups.ReadDir("attempts")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(tables, strings.TrimSuffix(entry.Name(), ".yaml")) {
			t.Errorf("attempts/%s is not one of the tables", entry.Name())
		}
	}
}

func TestEachVerbIsUsed(t *testing.T) {
	text := attemptFiles(t)
	for verb := range verbs() {
		step := regexp.MustCompile(`(?:[-{\[,] ?|  )` + regexp.QuoteMeta(verb) + `[:,\]\n]`)
		if !step.MatchString(text) {
			t.Errorf("no attempt has the step %q", verb)
		}
	}
}
