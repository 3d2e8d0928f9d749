// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/checkout"
)

func TestTheDocumentsHaveTheTableOfReleases(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "deploy", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n\n"+Table()+"\n") {
		t.Errorf("docs/deploy/upgrade.md lacks the table of this package:\n%s", Table())
	}
}

func TestTheUpgradeCoversEveryLineOfTheTable(t *testing.T) {
	for _, l := range lines {
		from, shown := skew{before, before, before}, l.shown == nil
		for _, step := range walk {
			shown = shown || l.shown(from, step.to)
			from = step.to
		}
		if !shown {
			t.Errorf("no step of the walk shows %s with %s", l.part, l.other)
		}
	}
}

func TestTheUpgradeReachesEachPairOfReleasesFromBothSides(t *testing.T) {
	type pair struct{ scheduler, kubecri release }
	came := map[[2]pair]bool{}
	at := pair{before, before}
	for _, step := range walk {
		to := pair{step.to.scheduler, step.to.kubecri}
		came[[2]pair{at, to}] = true
		at = to
	}
	both := []release{before, now}
	for _, other := range both {
		for _, change := range [][2]pair{
			{{before, other}, {now, other}}, {{now, other}, {before, other}},
			{{other, before}, {other, now}}, {{other, now}, {other, before}},
		} {
			if !came[change] {
				t.Errorf("the walk does not go from %v to %v", change[0], change[1])
			}
		}
	}
}
