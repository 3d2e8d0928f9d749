// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"slices"
	"strings"
)

// Takes says which of several variables that match a reader takes.
type Takes string

// The ways to take one.
const (
	// TakesLast is that of a program that fills a map.
	TakesLast Takes = "last"
	// TakesFirst is that of a program that searches.
	TakesFirst Takes = "first"
	// TakesAny is unknown: each of them may be taken.
	TakesAny Takes = "any"
)

// reader is how a program of a vendor's runtime reads its variables in the environment of a
// container, the list process.env of the OCI specification.
type reader struct {
	// names are the variables that the program takes for the same. One that ends with * stands for
	// all whose entries begin so. The first is what is set.
	names []string
	// blanks says that the program ignores blanks around the names.
	blanks bool
	// contains, if not empty, is a text without which the program passes over a value.
	contains string
	takes    Takes
	// reserves says that the program, which takes the last, also reserves the devices of each
	// earlier one, so that no other container gets them.
	reserves bool
	// nothing is the value by which a container gets nothing, and others are further ones.
	nothing string
	others  []string
	// harmful says that there is no such value: a container with the variable is refused, unless
	// permits, if it is not nil, permits what it is set to.
	harmful bool
	permits func(value string) bool
	// unset, if it is not nil, are containers without any of the variables to which the program
	// gives all devices.
	unset *unset
	// extends says that the program reads the variable only in containers that have a device of the
	// vendor.
	extends bool
}

// unset are the containers in which one variable has a value, or any if that has no name, and
// another one has none.
type unset struct{ with, without string }

// has reports whether a container with the environment is one of them.
func (u *unset) has(env []string) bool {
	if u == nil {
		return false
	}
	values := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return (u.with == "" || values[u.with] != "") && (u.without == "" || values[u.without] == "")
}

// taken is an entry of an environment that a reader takes.
type taken struct {
	name, value string
	// bare says that the entry has no value, not even an empty one.
	bare bool
	// missing says that there is no entry, which the program takes for a request of all devices.
	missing bool
	// earlier says that the program takes a later one, and reserves the devices of this one.
	earlier bool
}

// obeys returns what a program that reads so takes from the environment, in its order as the OCI
// runtime gets it. It is nothing, one entry or, with TakesAny, each that it might be. What it
// reserves comes before what it takes.
func (r *reader) obeys(env []string) []taken {
	var all []taken
	for _, entry := range env {
		name, value, found := strings.Cut(entry, "=")
		if r.matches(name) && strings.Contains(value, r.contains) {
			all = append(all, taken{name: name, value: value, bare: !found})
		}
	}
	switch {
	case len(all) == 0 || r.takes == TakesAny:
		return all
	case r.takes == TakesFirst:
		return all[:1]
	case r.reserves:
		for i := range all[:len(all)-1] {
			all[i].earlier = true
		}
		return all
	default:
		return all[len(all)-1:]
	}
}

// takesFrom is obeys for an environment that nothing is added to: where none of the variables is in
// it, the program may give all devices.
func (r *reader) takesFrom(env []string) []taken {
	all := r.obeys(env)
	if len(all) == 0 && r.unset.has(env) {
		return []taken{{name: r.names[0], missing: true}}
	}
	return all
}

// matches reports whether the reader may take a variable of the name.
func (r *reader) matches(name string) bool {
	if r.blanks {
		name = strings.TrimSpace(name)
	}
	return slices.ContainsFunc(r.names, func(known string) bool {
		if start, isPrefix := strings.CutSuffix(known, "*"); isPrefix {
			return strings.HasPrefix(name, start)
		}
		return name == known
	})
}

// sees reports whether the reader takes a variable that the request of the kubelet does not show,
// although the variables that are added there are the last: an earlier one, or one of another name.
func (r *reader) sees() bool {
	return r.takes != TakesLast || r.harmful || len(r.names) > 1 || r.contains != ""
}

// isHarmless reports whether what is taken requests nothing, for every allocation of the container.
func (r *reader) isHarmless(t taken) bool {
	if r.permits != nil && r.permits(t.value) {
		return true
	}
	return !r.harmful && !t.bare && !t.missing && (t.value == r.nothing || slices.Contains(r.others, t.value))
}
