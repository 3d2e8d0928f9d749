// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy has the manifests that programs compare with what a cluster has. kubectl reads the
// same files.
package deploy

import (
	"embed"
	"strings"
)

// Policies has the admission policies that guard what only the scheduler and the nodes may write,
// each file with policies and their bindings, in the directory policies.
//
//go:embed policies/*.yaml
var Policies embed.FS

// PolicyNames returns the names of the policies, which are those of their files.
func PolicyNames() ([]string, error) {
	files, err := Policies.ReadDir("policies")
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(file.Name(), ".yaml"))
	}
	return names, err
}

// SchedulerRights has the rights of the scheduler: roles, bindings, and the namespace of its
// leases, in the order in which they can be created.
//
//go:embed rbac/kubedevice-scheduler.yaml
var SchedulerRights []byte

//go:embed jobs/*.yaml
var jobs embed.FS

// Job returns the Job by which kubecri enrols a node, or has it leave: enrol or leave. NODE stands
// for the node's name.
func Job(verb string) ([]byte, error) { return jobs.ReadFile("jobs/" + verb + ".yaml") }

//go:embed systemd
var systemd embed.FS

// Unit returns kubecri's unit of systemd of that name.
func Unit(name string) ([]byte, error) { return systemd.ReadFile("systemd/" + name) }
