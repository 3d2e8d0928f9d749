// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet tests on a real cluster that the kubelet and its clients see no difference
// between kubecri and the container runtime itself. The cluster has one node of each kind; every
// story runs on both at the same time, and where the kubelet reports something, it must report the
// same.
package kubelet

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var (
	// shared is the cluster of all tests of this package. A test that breaks something repairs it
	// before it ends.
	shared *cluster.Cluster
	// settings are the kubelets' configuration.
	settings dropIns
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, prepare, use)) }

func use(c *cluster.Cluster) error {
	shared = c
	return nil
}

// prepare returns the options of a cluster with a node that has kubecri, and one that does without.
func prepare(directory string) (cluster.Options, error) {
	options, err := clustertest.Options("e2e-kubelet", 2)
	if err != nil {
		return options, err
	}
	options.Nodes[1].Kubecri, options.Nodes[1].Inventory = nil, ""
	settings = dropIns(directory)
	options.Visible = append(options.Visible, string(settings))
	for i := range options.Nodes {
		node := fmt.Sprintf("node-%d", i+1)
		if err := settings.set(node, quickly); err != nil {
			return options, err
		}
		options.Nodes[i].KubeletArgs = []string{"--config-dir=" + settings.directory(node)}
	}
	return options, nil
}

// timeout is how long a test waits for something that should take seconds.
const timeout = 4 * time.Minute

// onBothNodes runs a story on both nodes at once. It gets a context that ends with it, or when
// the timeout expires.
func onBothNodes(t *testing.T, story func(context.Context, *testing.T, *cluster.Node)) {
	t.Helper()
	compare(t, func(ctx context.Context, t *testing.T, node *cluster.Node) struct{} {
		story(ctx, t, node)
		return struct{}{}
	})
}

// compare runs a story on both nodes at once, and fails if what it returns differs between them.
func compare[T any](t *testing.T, story func(context.Context, *testing.T, *cluster.Node) T) {
	t.Helper()
	var through, without T
	t.Run("on a node", func(t *testing.T) {
		for name, on := range map[string]struct {
			node *cluster.Node
			saw  *T
		}{
			"with kubecri":    {shared.Nodes[0], &through},
			"without kubecri": {shared.Nodes[1], &without},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				*on.saw = story(ctx, t, on.node)
			})
		}
	})
	if diff := cmp.Diff(without, through); diff != "" && !t.Failed() {
		t.Errorf("what is seen (-without +with kubecri):\n%s", diff)
	}
}

// particulars are parts of messages that differ from node to node and from time to time: names,
// IDs, addresses, durations.
var particulars = regexp.MustCompile(
	`node-\d|test-\w{5}|\b[0-9a-f]{64}\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|` +
		`\b10\.7[78]\.\d+\.\d+(:\d+)?|:\d{5}\b|\b\d+(\.\d+)?(ms|s)\b`)

// inGeneral returns a message without its particulars.
func inGeneral(message string) string { return particulars.ReplaceAllString(message, "…") }
