// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// picky is a chooser of plain resources that come and go.
type picky struct {
	*fake
	serves map[types.ResourceName]bool
}

func (picky) Pure() bool                            { return true }
func (picky) Kinds() devicescheduler.Kinds          { return devicescheduler.Kinds{Levels: []string{"numa"}} }
func (p picky) Serves(name types.ResourceName) bool { return p.serves[name] }
func (picky) Choose(*types.NodeInfo, *types.PodInfo, []grouptree.Container) (float64, error) {
	return 0, nil
}

func TestADigestTellsWhatPodsAskForApart(t *testing.T) {
	chooser := picky{&fake{name: "picky"}, map[types.ResourceName]bool{}}
	s := set(t, clock.RealClock{}, pure{gpus()}, chooser)
	digests := map[[32]byte]string{}
	add := func(what string, request *Request) {
		t.Helper()
		digest := s.Digest(request)
		if other, known := digests[digest]; known {
			t.Errorf("%s has the digest of %s", what, other)
		}
		digests[digest] = what
	}
	add("one GPU", asking(1))
	add("two GPUs", asking(2))
	sidecar := asking(1)
	sidecar.Containers[0].Kind = grouptree.Sidecar
	add("a sidecar", sidecar)
	uncounted := asking(1)
	uncounted.Counted = nil
	add("a count that nobody serves", uncounted)
	chooser.serves["nvidia.com/gpu"] = true
	add("a count that the chooser has begun to serve", asking(1))

	again := asking(1)
	again.Pod.Name = "another"
	if s.Digest(again) != s.Digest(asking(1)) {
		t.Error("the name of a pod changes its digest")
	}
}

func TestANewEraBeginsWhenAPluginTranslatesOtherwise(t *testing.T) {
	plugin := &translator{fake: gpus()}
	s := set(t, clock.RealClock{}, plugin, pure{gpus()})
	before, ok := s.Era()
	if !ok {
		t.Fatal("answers that may be remembered have no era")
	}
	plugin.revision.Add(1)
	nodeLike(t, s, "n", 1, 0)
	if after, ok := s.Era(); !ok || after == before {
		t.Errorf("era %d, %t, as before", after, ok)
	}
	if _, ok := set(t, clock.RealClock{}, plugin, gpus()).Era(); ok {
		t.Error("answers that may not be remembered have an era")
	}
}
