// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package containers creates random containers on real container runtimes, one with kubecri as an
// NRI plugin and one behind kubecri as a proxy, and reads of the config.json that runc gets what
// the runtimes of vendors would obey. Images and pods have variables of vendors in all spellings,
// twice, with blanks and with values that are not UTF-8, arguments and labels, mounts and volumes
// at paths of devices, and are as large as NRI can take and larger. The same containers without the
// device firewall show that the test can fail.
//
// The kubelets are stopped: the tests create containers as kubelets do, which is faster.
package containers

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	created = flag.Int("containers", 80, "how many containers are created in each mode")
	times   = flag.Int("registrations", 3, "how often kubecri is killed meanwhile, and is registered again")
	pods    = flag.Int("pods", 30, "how many pods there are at most at a time, and while all CPUs are busy")
	seed    = flag.Uint64("seed", 1, "of the first half of the random containers; the second half has the next one")
)

// shared is a cluster of a node in each of the modes, as options describe it.
var (
	shared  *cluster.Cluster
	modes   = []cluster.Mode{cluster.ModeNRI, cluster.ModeCRI}
	options cluster.Options
)

// A vendor that is not built in, as the configuration of the nodes declares it, and its file.
// Which of its variables the vendor's runtime takes is not known.
const (
	declaredFile   = "/dev/mtgpu0"
	declaredVendor = `[{"name":"mthreads.com","deviceFiles":["` + declaredFile + `"],"variables":[` +
		`{"name":"MTHREADS_VISIBLE_DEVICES","nothing":"void","takes":"any"}]}]`
)

// cgroups is the parent of the nodes' cgroups.
var cgroups string

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func prepare(dir string) (cluster.Options, error) {
	var err error
	if options, err = clustertest.Options("e2e-containers", len(modes)); err != nil {
		return options, err
	}
	for i, mode := range modes {
		node := &options.Nodes[i]
		node.Mode = mode
		node.Kubecri.Args = []string{
			"--cridevices=" + dir, "--device-firewall-vendors=" + declaredVendor,
			"--v=2", // with which it logs that it is registered
		}
	}
	options.Visible = append(options.Visible, dir)
	cgroups = "/" + cluster.CgroupName(options.Dir)
	return options, clustertest.AddDevicePlugins(dir, "testdata/widgets")
}

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// begin returns the context of a test, which ends with it or after the timeout.
func begin(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}
