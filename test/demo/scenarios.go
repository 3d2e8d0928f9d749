// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/kubedevice/kubedevice/test/observe"
)

//go:embed pods
var files embed.FS

// A scene is one thing that the demo shows.
type scenario struct {
	title string
	// pods are the names of the pods, which are also those of their manifests.
	pods []string
	// pending says that the pods must not be scheduled.
	pending bool
	// check says what is wrong with what came out, beyond what is checked for every pod.
	check func(seen []*observe.Observation) error
}

// scenarios are shown in this order on one cluster of two nodes with 8 GPUs each: two sockets with
// two NVLink pairs, 80 GiB a GPU.
var scenarios = []scenario{
	{
		title: "2 GPUs, requested by count alone: they come as an NVLink pair",
		pods:  []string{"pair"},
		check: all(devices(2), inOneGroup("gpugrp0")),
	},
	{
		title: "4 GPUs with automatic topology: they come from one socket",
		pods:  []string{"quad"},
		check: all(devices(4), inOneGroup("gpugrp1")),
	},
	{
		title: "the pod of the published README: 2 GPUs, topology requested on the container",
		pods:  []string{"published"},
		check: all(devices(2), inOneGroup("gpugrp0")),
	},
	{
		title: "a shape written by hand: two GPUs that share the group A",
		pods:  []string{"shaped"},
		check: all(devices(2), inOneGroup("gpugrp0")),
	},
	{
		title: "two pods that each request half of a GPU's memory: they share one GPU",
		pods:  []string{"half-1", "half-2"},
		check: all(devices(1), shared),
	},
	{
		title:   "160 GiB of one GPU: no GPU has that, and the pod's event says so",
		pods:    []string{"too-large"},
		pending: true,
	},
	{
		title: "no device requested: none allocated, and nothing written on the pod",
		pods:  []string{"cpu-only"},
		check: untouched,
	},
}

type check = func([]*observe.Observation) error

func all(checks ...check) check {
	return func(seen []*observe.Observation) error {
		var errs []error
		for _, check := range checks {
			errs = append(errs, check(seen))
		}
		return errors.Join(errs...)
	}
}

func devices(n int) check {
	return func(seen []*observe.Observation) error {
		for _, o := range seen {
			if len(o.Chosen) != n {
				return fmt.Errorf("pod %s was allocated %d devices, not %d", o.Pod, len(o.Chosen), n)
			}
		}
		return nil
	}
}

// inOneGroup checks that all of a pod's devices are in one group of that level.
func inOneGroup(level string) check {
	return func(seen []*observe.Observation) error {
		for _, o := range seen {
			groups := map[string]bool{}
			for _, path := range o.Paths {
				before, _, found := strings.Cut(path, "/gpu/")
				at := strings.Index(before, "/"+level+"/")
				if !found || at < 0 {
					return fmt.Errorf("pod %s: %s names no %s", o.Pod, path, level)
				}
				group, _, _ := strings.Cut(before[at+len(level)+2:], "/")
				groups[group] = true
			}
			if len(groups) != 1 {
				return fmt.Errorf("pod %s: its devices are in %d groups of level %s", o.Pod, len(groups), level)
			}
		}
		return nil
	}
}

func shared(seen []*observe.Observation) error {
	if seen[0].Node != seen[1].Node || seen[0].Chosen[0] != seen[1].Chosen[0] {
		return fmt.Errorf("pods %s and %s do not share a device", seen[0].Pod, seen[1].Pod)
	}
	return nil
}

func untouched(seen []*observe.Observation) error {
	if o := seen[0]; o.Annotated || len(o.Chosen)+len(o.Visible) > 0 {
		return fmt.Errorf("pod %s requested nothing and got something", o.Pod)
	}
	return nil
}
