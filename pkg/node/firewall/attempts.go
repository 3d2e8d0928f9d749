// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import "fmt"

// maxNamed is how many attempts by variables are named. A pod may set thousands of variables, and a
// kubelet creates a refused container again for as long as its pod is there.
const maxNamed = 10

// attempts collects attempts by variables, each in constant time. One variable is one attempt,
// however often it is set and whichever reader takes it: the last value is the pod's.
type attempts struct {
	named  []Attempt
	places map[string]int // of each variable, in named or after it
	vendor string         // of the first attempt after the named ones
}

func (a *attempts) add(v *vendor, t taken) {
	place, is := a.places[t.name]
	if !is {
		if a.places == nil {
			a.places = map[string]int{}
		}
		place = len(a.places)
		a.places[t.name] = place
	}
	switch {
	case place < maxNamed && is:
		a.named[place].Text = textOf(t)
	case place < maxNamed:
		a.named = append(a.named, Attempt{v.name, ByEnv, textOf(t)})
	case place == maxNamed:
		a.vendor = v.name
	}
}

func textOf(t taken) string {
	if t.missing {
		return fmt.Sprintf("the missing environment variable %s", t.name)
	}
	return fmt.Sprintf("the environment variable %s=%.64s", t.name, t.value)
}

// all returns the first maxNamed attempts, and one that counts the others.
func (a *attempts) all() []Attempt {
	if more := len(a.places) - len(a.named); more > 0 {
		return append(a.named, Attempt{a.vendor, ByEnv, fmt.Sprintf("%d more environment variables", more)})
	}
	return a.named
}
