// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package toolkit

import (
	"slices"
	"strings"

	nri "github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unprotected returns the environment of a container without the firewall, with what its device
// plugin gives it.
func unprotected(c container, by frontend) []string {
	return by.merge(c.image, texts(list(c.env)), texts(list(c.passed)), nil)
}

// variables returns entries of an environment as variables.
func variables(entries []string) []*runtimeapi.KeyValue {
	var all []*runtimeapi.KeyValue
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		all = append(all, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	return all
}

// texts returns variables as entries of an environment.
func texts(variables []*runtimeapi.KeyValue) []string {
	var all []string
	for _, env := range variables {
		all = append(all, env.GetKey()+"="+string(env.GetValue()))
	}
	return all
}

// frontend is how variables that are added to a container come into its environment, and which
// runtime makes that of image and pod.
type frontend struct {
	name    string
	adjusts bool
	merge   func(image, pod, added, last []string) []string
}

// frontends are those of kubecri, and how containerd and CRI-O merge: the first appends the pod's
// variables to those of the image.
var frontends = []frontend{
	{"the proxy before containerd", false, func(image, pod, added, _ []string) []string {
		return slices.Concat(image, pod, added)
	}},
	{"the proxy before CRI-O", false, func(image, pod, added, _ []string) []string {
		return replaced(image, pod, added)
	}},
	{"NRI of containerd", true, func(image, pod, added, last []string) []string {
		spec := &rspec.Spec{Process: &rspec.Process{Env: slices.Concat(image, pod)}}
		adjust(spec, added)
		return replaced(spec.Process.Env, last)
	}},
}

// editor is what NRI's code edits a specification with, as containerd's does.
type editor struct {
	generate.UnderlyingGenerator
	spec *rspec.Spec
}

func (e editor) Spec() *rspec.Spec { return e.spec }

func (e editor) ClearProcessEnv() { e.spec.Process.Env = nil }

func (e editor) AddProcessEnv(name, value string) {
	e.spec.Process.Env = replaced(e.spec.Process.Env, []string{name + "=" + value})
}

// adjust does what containerd does for an adjustment of variables: the code is NRI's own.
func adjust(spec *rspec.Spec, added []string) {
	var adjustment []*nri.KeyValue
	for _, env := range variables(added) {
		adjustment = append(adjustment, &nri.KeyValue{Key: env.GetKey(), Value: string(env.GetValue())})
	}
	generate.SpecGenerator(editor{spec: spec}).AdjustEnv(adjustment)
}

// replaced returns lists after each other, where a name that is there already keeps its place.
func replaced(lists ...[]string) (env []string) {
	for _, entry := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(entry, "=")
		i := slices.IndexFunc(env, func(there string) bool { return strings.HasPrefix(there, name+"=") })
		if i < 0 {
			env = append(env, entry)
		} else {
			env[i] = entry
		}
	}
	return env
}
