// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kubedevice/kubedevice/test/cluster"
)

func TestFlagsAndEnvironmentDescribeTheCluster(t *testing.T) {
	defaults, err := cluster.Default(2)
	if err != nil {
		t.Fatal(err)
	}
	// Ours serves its API to the machine.
	defaults.Scheduler.Args = append(slices.Clone(defaults.Scheduler.Args), cluster.ServesDevices)
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args        []string
		environment map[string]string
		change      func(*cluster.Options) // from the defaults
	}{
		"nothing": {change: func(*cluster.Options) {}},
		"a number of nodes": {
			args:   []string{"--nodes=1"},
			change: func(o *cluster.Options) { o.Nodes = o.Nodes[:1] },
		},
		"a number of nodes, by the environment": {
			environment: map[string]string{"KUBEDEVICE_CLUSTER_NODES": "1"},
			change:      func(o *cluster.Options) { o.Nodes = o.Nodes[:1] },
		},
		"the command line wins over the environment": {
			args:        []string{"--nodes=2"},
			environment: map[string]string{"KUBEDEVICE_CLUSTER_NODES": "1"},
			change:      func(*cluster.Options) {},
		},
		"Kubernetes without KubeDevice": {
			args: []string{"--scheduler=upstream", "--kubecri=none"},
			change: func(o *cluster.Options) {
				o.Scheduler = cluster.Program{}
				o.Nodes[0].Kubecri, o.Nodes[1].Kubecri = nil, nil
			},
		},
		"other programs and plugins": {
			args: []string{
				"--scheduler=/s", "--scheduler-plugins=/sp", "--kubecri=/k", "--device-plugins=/dp", "--dir=/d",
			},
			change: func(o *cluster.Options) {
				o.Dir = "/d"
				o.Scheduler = cluster.Program{Path: "/s", Args: []string{"--devschedpath=/sp"}}
				for i := range o.Nodes {
					o.Nodes[i].Kubecri = &cluster.Program{Path: "/k", Args: []string{"--cridevices=/dp"}}
				}
			},
		},
		"another runtime": {
			args: []string{"--runtime=containerd-1.7"},
			change: func(o *cluster.Options) {
				o.Nodes[0].Runtime, o.Nodes[1].Runtime = cluster.Containerd17, cluster.Containerd17
			},
		},
		"an older Kubernetes": {
			args:   []string{"--kubernetes=1.34"},
			change: func(o *cluster.Options) { o.Kubernetes = cluster.Kubernetes134 },
		},
		"fewer inventories than nodes": {
			args: []string{"--inventory=one.yaml"},
			change: func(o *cluster.Options) {
				o.Nodes[0].Inventory, o.Nodes[1].Inventory = filepath.Join(here, "one.yaml"),
					filepath.Join(here, "one.yaml")
			},
		},
		"an inventory for each node": {
			args: []string{"--inventory=/1", "--inventory=/2"},
			change: func(o *cluster.Options) {
				o.Nodes[0].Inventory, o.Nodes[1].Inventory = "/1", "/2"
			},
		},
		"an inventory for each node, by the environment, and more manifests": {
			args:        []string{"--manifests=/m,/n"},
			environment: map[string]string{"KUBEDEVICE_CLUSTER_INVENTORY": "/1,/2"},
			change: func(o *cluster.Options) {
				o.Nodes[0].Inventory, o.Nodes[1].Inventory = "/1", "/2"
				o.Manifests = append(o.Manifests, "/m", "/n")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range test.environment {
				t.Setenv(name, value)
			}
			want := defaults
			want.Nodes = append([]cluster.NodeOptions{}, defaults.Nodes...)
			test.change(&want)
			var flags upFlags
			set := flags.set()
			if err := set.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			if err := fromEnvironment(set); err != nil {
				t.Fatal(err)
			}
			got, err := flags.options()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnEnvironmentVariableThatMakesNoSenseIsNamed(t *testing.T) {
	t.Setenv("KUBEDEVICE_CLUSTER_NODES", "many")
	var flags upFlags
	if err := fromEnvironment(flags.set()); err == nil || !strings.Contains(err.Error(), "KUBEDEVICE_CLUSTER_NODES") {
		t.Errorf("error %v", err)
	}
}
