// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// behaviour is a row of the table.
type behaviour struct {
	// name is what the plugin does, and row the short form of it, for names.
	name, row string
	// play does it at a host, and returns the outcome.
	play func(*side) string
	// want is the outcome with the kubelet, and here that with kubecri: empty for the same.
	want, here string
	// reason is the part of a sentence of docs/device-plugins.md that says why they differ.
	reason string
}

// table is all behaviours.
func table() []behaviour {
	return slices.Concat(registrations(), lists(), successions(), answers(), mounts(), together(), calls(), restarts())
}

// atOnce is how many rows are played at the same time: they wait most of the time.
const atOnce = 20

func TestPluginsRunWithKubecriAsWithTheKubelet(t *testing.T) {
	ctx := tableContext(t)
	namespace := clustertest.Namespace(t, shared.Client)
	hosts := []*host{
		newHost(t, "kubelet", shared.Nodes[0], "kubelet", clustertest.KubeletPodResources, namespace),
		newHost(t, "kubecri", shared.Nodes[1], "kubedevice", clustertest.KubecriPodResources, namespace),
	}
	rows := table()
	outcomes := make([][2]string, len(rows))
	slots := make(chan struct{}, atOnce)
	var playing sync.WaitGroup
	for i, row := range rows {
		playing.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var both sync.WaitGroup
			for at, h := range hosts {
				both.Go(func() { outcomes[i][at] = h.perform(ctx, row.row, row.play) })
			}
			both.Wait()
		})
	}
	playing.Wait()
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			here := row.here
			if here == "" {
				here = row.want
			}
			for at, want := range []string{row.want, here} {
				if got := outcomes[i][at]; got != want {
					t.Errorf("with the %s: %q, want %q", hosts[at].name, got, want)
				}
			}
		})
	}
}

func TestEachDifferenceHasAReasonInTheDocuments(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "docs", "device-plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(content)), " ")
	seen := map[string]bool{}
	for _, row := range table() {
		switch {
		case seen[row.row] || seen[row.name]:
			t.Errorf("%s (%s) stands twice in the table", row.name, row.row)
		case (row.here == "") != (row.reason == ""):
			t.Errorf("%s: a difference needs a reason, and a reason a difference", row.name)
		case row.reason != "" && !strings.Contains(text, row.reason):
			t.Errorf("%s: docs/device-plugins.md does not say %q", row.name, row.reason)
		}
		seen[row.row], seen[row.name] = true, true
	}
	if len(table()) < 60 {
		t.Errorf("the table has %d behaviours, want 60 at least", len(table()))
	}
}
