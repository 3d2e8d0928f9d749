// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheStrongestEnforcementThatAppliesCounts(t *testing.T) {
	const device = "gpugrp1/0/gpu/GPU-1"
	node := func(policy string, can ...Enforcement) ShareEnforcement {
		return ShareEnforcement{OnShareExceeded: policy, Devices: map[string][]Enforcement{"gpu/GPU-1": can}}
	}
	for name, test := range map[string]struct {
		node ShareEnforcement
		pod  string
		want Enforcement
	}{
		"a node that says nothing": {ShareEnforcement{}, "End", Counted},
		"another device": {
			ShareEnforcement{"End", map[string][]Enforcement{"gpu/GPU-2": {Policed}}}, "", Counted,
		},
		"the node ends containers":           {node("End", Policed), "", Policed},
		"the node evicts pods":               {node("Evict", Policed), "", Policed},
		"nothing follows":                    {node("Ignore", Policed), "", Counted},
		"the pod wants something to follow":  {node("Ignore", Policed), "Evict", Policed},
		"the pod is left alone":              {node("End", Policed), "Ignore", Counted},
		"the pod says what is no policy":     {node("End", Policed), "end", Policed},
		"what a later release knows":         {node("End", "oath", Policed), "", Policed},
		"what a later release knows, alone":  {node("End", "oath"), "", Counted},
		"a library, as nothing follows":      {node("Ignore", Policed, Library), "", Library},
		"more than a library":                {node("End", Policed, Library), "", Policed},
		"hardware that holds a share itself": {node("Ignore", EnforcedByHardware, Policed), "", EnforcedByHardware},
	} {
		if got := test.node.Of(device, test.pod); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if !Policed.Satisfies(Library) || !Library.Satisfies(Counted) || Library.Satisfies(Policed) {
		t.Error("a library is stronger than counted, and weaker than policed")
	}
	if !Policed.Satisfies(Counted) || !Policed.Satisfies(Policed) || Policed.Satisfies(EnforcedByHardware) {
		t.Error("policed is stronger than counted, and weaker than hardware")
	}
}

func TestShareEnforcementIsWrittenAndRead(t *testing.T) {
	all := ShareEnforcement{"Ignore", map[string][]Enforcement{}}
	for n := range 1000 {
		all.Devices[fmt.Sprintf("gpu/GPU-%04d", n)] = []Enforcement{Policed}
	}
	for _, limit := range []int{0, 50, 60, 61, 62, 63, 100, 1000, 1 << 20} {
		value := EncodeShareEnforcement(all, limit)
		if len(value) > min(limit, MaxShareEnforcementBytes) {
			t.Errorf("with a limit of %d it has %d bytes", limit, len(value))
		}
		got, err := DecodeShareEnforcement(value)
		if err != nil {
			t.Errorf("%q: %v", value, err)
		}
		for n := range len(got.Devices) {
			if device := fmt.Sprintf("gpu/GPU-%04d", n); !cmp.Equal(got.Devices[device], all.Devices[device]) {
				t.Errorf("with a limit of %d, device %s of %d is left out", limit, device, len(got.Devices))
			}
		}
		if limit > 1000 && len(got.Devices) < 300 {
			t.Errorf("with a limit of %d there are %d devices", limit, len(got.Devices))
		}
	}
	if value := EncodeShareEnforcement(ShareEnforcement{OnShareExceeded: "End"}, 1000); value != "" {
		t.Errorf("nothing is written as %q", value)
	}
	for _, value := range []string{"{", `[]`, strings.Repeat(" ", MaxShareEnforcementBytes+1)} {
		if got, err := DecodeShareEnforcement(value); err == nil || len(got.Devices) > 0 {
			t.Errorf("%.20q is read as %v (%v)", value, got, err)
		}
	}
}
