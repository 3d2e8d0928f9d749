// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// moved returns the sides of a row, one after the other, on which a plugin has moved from the
// kubelet: at kubecri, the kubelet has the devices from kubecri in the plugin's place.
func moved(ctx context.Context, t *testing.T, row string, each func(s *side)) {
	t.Helper()
	namespace := clustertest.Namespace(t, shared.Client)
	for _, h := range []*host{
		newHost(t, kubelet, shared.Nodes[0], "kubelet", clustertest.KubeletPodResources, namespace),
		newHost(t, kubecri, shared.Nodes[1], "kubedevice", clustertest.KubecriPodResources, namespace),
	} {
		t.Run(h.name, func(t *testing.T) {
			s := newSide(ctx, h, row)
			defer s.end()
			s.must(t, "plugin-at-kubelet devices a", "plugin-at-kubelet start", "plugin-at-kubelet stop", "left",
				"plugin devices a", "plugin start", "offered a")
			each(s)
		})
	}
}

// must carries out commands, or ends the test.
func (s *side) must(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if _, err := s.do(command); err != nil {
			t.Fatalf("with the %s, %q: %v", s.name, command, err)
		}
	}
}

// Where kubecri is registered at the kubelet for a plugin, the kubelet does without kubecri what it
// does without the plugin: it fails the pods that come. A plugin that was there registers again at
// the next kubecri, as it does at the next kubelet, and its devices are offered.
func TestPodsThatComeWhileKubecriIsAwayFailAsWithoutTheirPlugin(t *testing.T) {
	ctx := tableContext(t)
	moved(ctx, t, "away", func(s *side) {
		if s.name == kubecri {
			if err := s.node.Kubecri.Kill9(ctx); err != nil {
				t.Fatal(err)
			}
		} else {
			s.must(t, "plugin stop")
		}
		s.must(t, "left")
		const want = "fails at admission"
		if said, err := s.bound(); said != want || err != nil {
			t.Errorf("with the %s, a pod that comes meanwhile %s, %v, want that it %s", s.name, said, err, want)
		}
		if s.name == kubecri {
			if err := s.node.Kubecri.Start(); err != nil {
				t.Fatal(err)
			}
			s.must(t, "plugin again")
		} else {
			s.must(t, "plugin start")
		}
		s.must(t, "offered a", "probe echo ran")
	})
}

// The kubelet fails a pod that was just bound when its plugin ends. At kubecri such a pod waits:
// the placeholder plugin stays for half a minute, see docs/vendors/device-plugins.md.
func TestAPodThatWasJustBoundWhenItsPluginEndsWaits(t *testing.T) {
	ctx := tableContext(t)
	moved(ctx, t, "endsbound", func(s *side) {
		want := "is admitted"
		s.must(t, "plugin stop")
		ended := time.Now()
		if s.name == kubelet {
			want = "fails at admission"
			s.must(t, "left")
		}
		if said, err := s.bound(); said != want || err != nil {
			t.Errorf("with the %s, a pod that was just bound %s after %v, %v, want that it %s",
				s.name, said, time.Since(ended), err, want)
		}
	})
}
