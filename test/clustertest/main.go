// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustertest runs the tests of a package on a real cluster.
package clustertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// Limits allow for busy machines: a quiet one starts a cluster in five seconds and stops it in
// one.
const (
	startTimeout = 3 * time.Minute
	stopTimeout  = time.Minute
)

// The environment variables that choose a cluster, which are those of the flags of "cluster up".
const (
	KubernetesVariable = "KUBEDEVICE_CLUSTER_KUBERNETES"
	RuntimeVariable    = "KUBEDEVICE_CLUSTER_RUNTIME"
	ModeVariable       = "KUBEDEVICE_CLUSTER_MODE"
)

// FullVariable is the environment variable that "make test-e2e-full" sets.
const FullVariable = "KUBEDEVICE_E2E_FULL"

// Full reports whether tests leave nothing out. "make test" leaves out what takes long and
// resembles what it runs.
func Full() bool { return os.Getenv(FullVariable) == "true" }

// OnlyInFull skips a test, unless Full. instead says what each run has in its place.
func OnlyInFull(t *testing.T, instead string) {
	t.Helper()
	if !Full() {
		t.Skip("only with make test-e2e-full: " + instead)
	}
}

// Main runs the tests of a package on a cluster, and returns the exit code for TestMain. Where
// Skipped says so, no test runs.
//
// prepare returns the options of the cluster, which must name a directory that no other package
// uses; its logs stay after a failure. prepare may keep files in dir, which all users can read and
// which is removed at the end. use gets the cluster before the first test. When either fails, no
// test runs. Tests without a cluster of the package's own have neither.
func Main(m *testing.M, prepare func(dir string) (cluster.Options, error), use func(*cluster.Cluster) error) int {
	if code, skipped := Skipped(); skipped {
		return code
	}
	if prepare == nil {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "kubedevice-e2e-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return fail(err)
	}
	options, err := prepare(dir)
	if err != nil {
		return fail(err)
	}
	return run(m, options, use)
}

func run(m *testing.M, options cluster.Options, use func(*cluster.Cluster) error) int {
	if err := Build(context.Background(), options.Programs, options.Extras()...); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return fail(err)
	}
	var code int
	if err := use(c); err != nil {
		code = fail(err)
	} else {
		code = m.Run()
	}
	ctx, cancel = context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		return fail(err)
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the logs of the cluster's programs are in %s\n", filepath.Join(options.Dir, "logs"))
	}
	return code
}

// Options returns those of a cluster that runs KubeDevice, with a directory of its own,
// _output/<name>. KubernetesVariable, RuntimeVariable and ModeVariable choose its Kubernetes, and
// the container runtime and the mode of kubecri of its nodes.
func Options(name string, nodes int) (cluster.Options, error) {
	options, err := cluster.Default(nodes)
	if err != nil {
		return options, err
	}
	options.Dir = filepath.Join(filepath.Dir(options.Dir), name)
	options.Kubernetes = cmp.Or(cluster.Kubernetes(os.Getenv(KubernetesVariable)), cluster.Kubernetes137)
	for i := range options.Nodes {
		options.Nodes[i].Runtime = cluster.Runtime(os.Getenv(RuntimeVariable))
		options.Nodes[i].Mode = cluster.Mode(os.Getenv(ModeVariable))
	}
	return options, nil
}

// HostedOptions returns Options for nodes that have no plugins of KubeDevice's own, only those that
// register with kubecri. An empty directory, which it makes in dir, stands for the plugins'
// directories.
func HostedOptions(name string, nodes int, dir string) (cluster.Options, error) {
	options, err := Options(name, nodes)
	if err != nil {
		return options, err
	}
	none := filepath.Join(dir, "no-plugins")
	options.Scheduler.Args = []string{"--devschedpath=" + none}
	for i := range options.Nodes {
		options.Nodes[i].Inventory = ""
		options.Nodes[i].Kubecri.Args = []string{"--cridevices=" + none}
	}
	return options, os.Mkdir(none, 0o755)
}

// Build brings the programs of all clusters, and the extras that are requested, up to date.
func Build(ctx context.Context, programs string, extras ...binaries.Extra) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	return binaries.Build(ctx, filepath.Join(root, "test"), programs, os.Stderr, extras...)
}

// Skipped says whether the tests of a package that needs root on Linux cannot run here; then it
// says why, and returns the exit code: 0, unless CI is true.
func Skipped() (code int, skipped bool) {
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		return 0, false
	}
	const reason = "they need root on Linux, for namespaces and device nodes"
	if os.Getenv("CI") == "true" {
		return fail(errors.New("the tests of this package cannot run: " + reason +
			"; with CI=true nothing may be skipped")), true
	}
	fmt.Fprintln(os.Stderr, "SKIPPED: all tests of this package:", reason)
	return 0, true
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "FAIL:", err)
	return 1
}
