// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Overrides are what keeps a container from devices by its variables.
type Overrides struct {
	// Set are variables to set, beyond those that the container gets, sorted by name.
	Set []*runtimeapi.KeyValue
	// Last are variables to set when all others are, in a container in which some stand twice: NRI
	// replaces the first of a name by its adjustment, and that by the second. A CDI device does it.
	Last []*runtimeapi.KeyValue
	// Ended are the attempts of the pod that this ends: the first ones, and one that counts the
	// others.
	Ended []Attempt
	// Refused are those of pod or image that it cannot end.
	Refused []Attempt
}

// Neutralise returns how the container is kept from the devices that its variables name. passed are
// those that device plugins set for devices that it was allocated, which allocated reports.
//
// Everything is decided on the environment as the OCI runtime will get it: what each reader takes
// from it must be what the container was allocated, or request nothing. Nothing else is overridden.
func (g *Guard) Neutralise(c Container, passed []*runtimeapi.KeyValue, allocated bool) Overrides {
	n := neutraliser{c: c, passed: passed, set: map[string]string{}, last: map[string]string{}}
	for _, v := range g.vendors {
		for i := range v.readers {
			if r := &v.readers[i]; !r.extends || allocated || g.hasOthers(v.vendor, c) {
				n.readers = append(n.readers, reading{v.vendor, r})
			}
		}
	}
	isRead := func(env *runtimeapi.KeyValue) bool {
		return slices.ContainsFunc(n.readers, func(r reading) bool { return r.matches(env.GetKey()) })
	}
	n.image, n.own = filter(c.Image, isRead), filter(c.Config.GetEnvs(), isRead)
	for _, r := range n.readers {
		if !r.harmful {
			n.setVariable(r, r.names[0])
		}
	}
	for _, r := range n.readers {
		n.note(r)
		n.override(r)
	}
	return Overrides{Set: sorted(n.set), Last: sorted(n.last), Ended: n.ended.all(), Refused: n.refused.all()}
}

// Neutral returns variables that are set in every container of a node with a vendor's devices, each
// as name=value and once.
func (f *Firewall) Neutral() []string {
	var all []string
	for _, v := range f.vendors {
		for _, r := range v.readers {
			if !r.extends && !r.harmful {
				all = append(all, r.names[0]+"="+r.nothing)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Taken returns the attempts of a container that exists already, whose variables were not
// overridden, by what its runtime has taken.
func (g *Guard) Taken(c Container) []Attempt {
	var taken attempts
	n, env := neutraliser{c: c}, entries(c.Config.GetEnvs())
	for _, v := range g.vendors {
		for i := range v.readers {
			r := reading{v.vendor, &v.readers[i]}
			if r.extends && !g.hasOthers(v.vendor, c) {
				continue
			}
			for _, t := range r.takesFrom(env) {
				if t.missing && (!v.managed || !g.firewall.hadDevices(v.vendor, c.Created)) {
					continue // else each container of a node would be ended whose driver came later
				}
				if !n.mayTake(r, t) {
					taken.add(v.vendor, t)
				}
			}
		}
	}
	return taken.all()
}

func filter(variables []*runtimeapi.KeyValue, keep func(*runtimeapi.KeyValue) bool) []*runtimeapi.KeyValue {
	var kept []*runtimeapi.KeyValue
	for _, env := range variables {
		if keep(env) {
			kept = append(kept, env)
		}
	}
	return kept
}

// NeedsImage reports whether what a container gets depends on volumes of its image, or on variables
// that cannot be overridden without knowledge of them, where the kubelet's request is all that is
// known.
func (g *Guard) NeedsImage(c Container, allocated bool) bool {
	return slices.ContainsFunc(g.vendors, func(v guarded) bool {
		return len(v.mountPaths) > 0 || slices.ContainsFunc(v.readers, func(r reader) bool {
			return r.sees() && (!r.extends || allocated || g.hasOthers(v.vendor, c))
		})
	})
}

// hasOthers reports whether the kubelet's plugins gave the container devices of the vendor.
func (g *Guard) hasOthers(v *vendor, c Container) bool {
	return slices.ContainsFunc(c.Kubelet, func(injection KubeletInjection) bool { return v.owns(injection.Resource) })
}

// reading is a reader of a vendor's.
type reading struct {
	*vendor
	*reader
}

// neutraliser is a call of Neutralise.
type neutraliser struct {
	c          Container
	passed     []*runtimeapi.KeyValue
	image, own []*runtimeapi.KeyValue // of the container's variables those that are read
	readers    []reading

	set, last map[string]string
	// environments are results, or nil if a variable was set since.
	environments   [][]string
	ended, refused attempts
}

// wanted returns what the reader may take: what a plugin gave, or what requests nothing.
func (n *neutraliser) wanted(r reading) (value string, isAllocated bool) {
	for _, env := range n.passed {
		if r.matches(env.GetKey()) {
			return string(env.GetValue()), true
		}
	}
	for _, injection := range n.c.Kubelet {
		if !r.owns(injection.Resource) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(injection.Envs)) {
			if r.matches(name) {
				return injection.Envs[name], true
			}
		}
	}
	return r.nothing, false
}

// mayTake reports whether a reader may take that.
func (n *neutraliser) mayTake(r reading, t taken) bool {
	return r.isHarmless(t) || n.isWanted(r, t)
}

// mustTake reports whether a reader takes in the end what it should: what the container was
// allocated is not lost for what requests nothing. Of a vendor that is not guarded itself, it may
// be.
func (n *neutraliser) mustTake(r reading, t taken) bool {
	if t.earlier {
		return n.mayTake(r, t)
	}
	if value, isAllocated := n.wanted(r); isAllocated && value != r.nothing && r.foreignKinds == nil {
		return n.isWanted(r, t)
	}
	// Two plugins may name one variable, each with its own word for nothing: the first counts.
	set, isSet := n.set[t.name]
	return r.isHarmless(t) || isSet && !r.harmful && !t.bare && t.value == set
}

// isWanted reports whether a reader takes what the container was allocated.
func (n *neutraliser) isWanted(r reading, t taken) bool {
	value, isAllocated := n.wanted(r)
	return isAllocated && !t.bare && !t.missing && t.value == value
}

// isAllocated reports whether a device plugin sets the variable, for devices that the container was
// allocated: then the plugin's value counts, not the pod's.
func (n *neutraliser) isAllocated(name string) bool {
	return slices.ContainsFunc(n.passed, func(env *runtimeapi.KeyValue) bool { return env.GetKey() == name })
}

// setVariable sets a variable for the reader, and reports whether it was not set before.
func (n *neutraliser) setVariable(r reading, name string) bool {
	if _, isSet := n.set[name]; isSet || n.isAllocated(name) {
		return false
	}
	n.set[name], _ = n.wanted(r)
	n.environments = nil
	return true
}

// note records the attempts of the pod by variables that the reader might take.
func (n *neutraliser) note(r reading) {
	if r.harmful {
		return // override refuses the container, if it is taken
	}
	for _, env := range n.own {
		t := taken{name: env.GetKey(), value: string(env.GetValue())}
		if r.matches(t.name) && strings.Contains(t.value, r.contains) && !n.mayTake(r, t) && !n.isAllocated(t.name) &&
			(n.c.Own == nil || n.c.Own.Sets(t.name)) {
			n.ended.add(r.vendor, t)
		}
	}
}

// override sets variables until the reader takes nothing that it must not. What it would take
// nevertheless is set last of all if that is possible, and otherwise the container is refused.
func (n *neutraliser) override(r reading) {
	for {
		wrong := n.unwanted(r)
		if len(wrong) == 0 {
			return
		}
		changed := false
		for _, t := range wrong {
			if !r.harmful && n.setVariable(r, t.name) {
				changed = true
			}
		}
		if changed {
			continue
		}
		// A name that a pod or an image can make up is not set last: each is a CDI device.
		_, isLast := n.last[wrong[0].name]
		if !n.c.Adjusted || r.harmful || isLast || !slices.Contains(r.names, wrong[0].name) {
			n.refused.add(r.vendor, wrong[0])
			return
		}
		n.last[wrong[0].name], _ = n.wanted(r)
		n.environments = nil
	}
}

// unwanted returns what the reader takes in the end and must not.
func (n *neutraliser) unwanted(r reading) []taken {
	if n.environments == nil {
		n.environments = n.results()
	}
	var all []taken
	for _, env := range n.environments {
		for _, t := range r.obeys(env) {
			if !n.mustTake(r, t) {
				all = append(all, t)
			}
		}
	}
	return all
}

// results returns the environments, as far as they are read, that the container may have in the
// end, as the OCI runtime gets them. Container runtimes differ: containerd appends variables to
// those of the image, CRI-O replaces them.
func (n *neutraliser) results() [][]string {
	added := slices.Concat(n.passed, sorted(n.set))
	if n.c.Adjusted {
		return [][]string{replaceEntries(applyAdjustment(entries(n.own), added), entries(sorted(n.last)))}
	}
	all := entries(slices.Concat(n.image, n.own, added))
	return [][]string{all, replaceEntries(nil, all)}
}

// applyAdjustment returns the environment after an adjustment by NRI: pkg/runtime-tools/generate of
// containerd/nri replaces the first variable of a name, adds what is left, and its Generator
// (AddProcessEnv) keeps each name once, with the value that comes last.
func applyAdjustment(env []string, adjustment []*runtimeapi.KeyValue) []string {
	left := map[string]string{}
	for _, set := range adjustment {
		left[set.GetKey()] = string(set.GetValue())
	}
	var all []string
	for _, entry := range env {
		name, _, hasValue := strings.Cut(entry, "=")
		if !hasValue || name == "" {
			continue
		}
		if value, is := left[name]; is {
			delete(left, name)
			entry = name + "=" + value
		}
		all = append(all, entry)
	}
	for _, set := range adjustment {
		if value, is := left[set.GetKey()]; is {
			all = append(all, set.GetKey()+"="+value)
		}
	}
	return replaceEntries(nil, all)
}

// replaceEntries returns the environment with further entries: one whose name is there takes its
// place.
func replaceEntries(env, further []string) []string {
	all := slices.Clone(env)
	places := make(map[string]int, len(all)+len(further))
	for i, entry := range all {
		name, _, _ := strings.Cut(entry, "=")
		places[name] = i
	}
	for _, entry := range further {
		name, _, _ := strings.Cut(entry, "=")
		if i, is := places[name]; is {
			all[i] = entry
		} else {
			places[name] = len(all)
			all = append(all, entry)
		}
	}
	return all
}

// entries returns variables as the OCI specification has them.
func entries(variables []*runtimeapi.KeyValue) []string {
	all := make([]string, 0, len(variables))
	for _, env := range variables {
		all = append(all, env.GetKey()+"="+string(env.GetValue()))
	}
	return all
}

func sorted(variables map[string]string) []*runtimeapi.KeyValue {
	var all []*runtimeapi.KeyValue
	for name, value := range variables {
		all = append(all, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	slices.SortFunc(all, func(a, b *runtimeapi.KeyValue) int { return cmp.Compare(a.GetKey(), b.GetKey()) })
	return all
}
