// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package containers creates random containers on real container runtimes, one with kubecri as an
// NRI plugin and one behind kubecri as a proxy, and reads of the config.json that runc gets what
// the runtimes of vendors would obey. Images and pods have variables of vendors in all spellings,
// twice and with blanks, and are as large as NRI can take and larger.
//
// The kubelets are stopped: the tests create containers as kubelets do, which is faster.
package containers

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	created = flag.Int("containers", 60, "how many containers are created in each mode")
	times   = flag.Int("registrations", 3, "how often kubecri is killed meanwhile, and is registered again")
	pods    = flag.Int("pods", 30, "how many pods there are while all CPUs are busy")
	seed    = flag.Uint64("seed", 1, "of the random containers")
)

// shared is a cluster of two nodes. On the first kubecri is an NRI plugin, on the second a proxy.
var shared *cluster.Cluster

// cgroups is the parent of the nodes' cgroups.
var cgroups string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	options, err := clustertest.Options("e2e-containers", 2)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	options.Nodes[0].Mode, options.Nodes[1].Mode = cluster.ModeNRI, cluster.ModeCRI
	cgroups = "/" + cluster.CgroupName(options.Dir)
	return clustertest.Run(m, options, func(c *cluster.Cluster) { shared = c })
}

// begin returns the context of a test, which ends with it or after the timeout.
func begin(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}
