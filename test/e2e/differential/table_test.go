// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// atOnce is how many behaviours are played at the same time: they wait most of the time.
const atOnce = 12

// sampled is how many behaviours are played where not all are.
const sampled = 40

// played returns the behaviours that are played: all of them, or others each time.
func played(t *testing.T) []behaviour {
	t.Helper()
	all := readBehaviours(t)
	if clustertest.Full() {
		return all
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:sampled]
}

func TestPluginsRunWithKubecriAsWithTheKubelet(t *testing.T) {
	ctx := tableContext(t)
	namespace := clustertest.Namespace(t, shared.Client)
	hosts := []*host{
		newHost(t, kubelet, shared.Nodes[0], "kubelet", clustertest.KubeletPodResources, namespace),
		newHost(t, kubecri, shared.Nodes[1], "kubedevice", clustertest.KubecriPodResources, namespace),
	}
	all := played(t)
	problems := make([][2]string, len(all))
	slots := make(chan struct{}, atOnce)
	var playing sync.WaitGroup
	for i, b := range all {
		playing.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var both sync.WaitGroup
			for at, h := range hosts {
				both.Go(func() { problems[i][at] = h.play(ctx, b) })
			}
			both.Wait()
		})
	}
	playing.Wait()
	for i, b := range all {
		t.Run(b.name, func(t *testing.T) {
			for at, problem := range problems[i] {
				if problem != "" {
					t.Errorf("with the %s, %s", hosts[at].name, problem)
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
	content, err := os.ReadFile(filepath.Join(root, "docs", "vendors", "device-plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(content)), " ")
	seen := map[string]bool{}
	all := readBehaviours(t)
	for _, b := range all {
		switch {
		case seen[b.row] || seen[b.name]:
			t.Errorf("%s (%s) stands twice in the table", b.name, b.row)
		case b.differs() != (b.reason != ""):
			t.Errorf("%s: a difference needs a reason, and a reason a difference", b.name)
		case b.reason != "" && !strings.Contains(text, b.reason):
			t.Errorf("%s: docs/vendors/device-plugins.md does not say %q", b.name, b.reason)
		}
		for _, h := range []string{kubelet, kubecri} {
			if b.checks(h) == 0 {
				t.Errorf("%s: nothing is checked with the %s", b.name, h)
			}
		}
		seen[b.row], seen[b.name] = true, true
	}
	if len(all) < 100 {
		t.Errorf("the table has %d behaviours, want 100 at least", len(all))
	}
}
