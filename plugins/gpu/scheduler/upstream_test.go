// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

var upstreamStates = flag.Int("upstream.states", 40, "number of clusters of the comparison with upstream's Filter; "+
	"the full run is of 300")

// randomPod returns a pod that counts GPUs in some of its containers.
func randomPod(random *rand.Rand) (p pod) {
	kinds := [][]grouptree.Kind{
		{grouptree.Regular}, {grouptree.Regular}, {grouptree.Regular}, {grouptree.Regular, grouptree.Regular},
		{grouptree.Init, grouptree.Regular}, {grouptree.Sidecar, grouptree.Regular},
		{grouptree.Sidecar, grouptree.Init, grouptree.Regular},
		{grouptree.Init, grouptree.Sidecar, grouptree.Init, grouptree.Regular, grouptree.Regular},
	}[random.IntN(8)]
	for _, kind := range kinds {
		count := []int64{0, 1, 1, 2, 2, 3, 4}[random.IntN(7)]
		if len(kinds) == 1 {
			count = 1 + random.Int64N(5)
		}
		p = append(p, container{kind: kind, count: count})
	}
	return p
}

// compare fails the test if upstream's Filter accepts a node for the pod that ours refuses. It
// returns how many nodes upstream's accepts, and how many it refuses.
func (s *simulation) compare(upstream map[string]*framework.NodeInfo, next pod) (accepted, refused int) {
	s.Helper()
	spec, request := next.spec("next"), requestOf(next.info("next"))
	for i, n := range s.nodes {
		lacks := noderesources.Fits(spec, upstream[n.name], nil, noderesources.ResourceRequestsOptions{})
		if len(lacks) > 0 {
			refused++
			continue
		}
		accepted++
		if ours := s.fits(n, request); !ours.Fits && !ours.NoDevices {
			s.Fatalf("node %d fits upstream, and is refused here: %v %v\nnext %s", i, ours.Shortage, ours.Reasons, next)
		}
	}
	return accepted, refused
}

// With any pods, a node that upstream's Filter accepts for the next pod is accepted here, if
// pods do nothing but count devices.
func TestNodesThatUpstreamAcceptsAreAccepted(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(*upstreamStates) {
		random := rand.New(rand.NewPCG(seed, 7))
		var drawings []string
		for range 2 + random.IntN(3) {
			drawings = append(drawings, randomDrawing(random))
		}
		s := newSimulation(t, allocation.TopologyPrefer, drawings...)
		upstream := s.upstream()
		for i := 0; ; i++ {
			next := randomPod(random)
			yes, no := s.compare(upstream, next)
			accepted, refused = accepted+yes, refused+no
			if s.halfFull() || i == 100 {
				break
			}
			before := map[string]int{}
			for _, n := range s.nodes {
				before[n.name] = len(n.holders)
			}
			name := fmt.Sprint("pod-", i)
			s.place(requestOf(next.info(name)))
			for _, n := range s.nodes {
				if len(n.holders) > before[n.name] {
					upstream[n.name].AddPod(next.spec(name))
				}
			}
		}
	}
	t.Logf("%d nodes accepted, %d refused by upstream", accepted, refused)
	if accepted < *upstreamStates || refused < *upstreamStates/4 {
		t.Error("the clusters are too much alike")
	}
}

// The recorded states stay the same when the allocator places pods otherwise.
func TestInEachRecordedStateNodesThatUpstreamAcceptsAreAccepted(t *testing.T) {
	if *rewriteStates {
		text := bytes.NewBufferString(statesHeader)
		for seed := range uint64(recordedStates) {
			recordState(t, seed).write(text)
		}
		if err := os.WriteFile(statesFile, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	states := readStates(t)
	if len(states) != recordedStates {
		t.Fatalf("%s has %d states, want %d", statesFile, len(states), recordedStates)
	}
	accepted, refused := 0, 0
	for i, recorded := range states {
		s, upstream := recorded.load(t)
		if !s.halfFull() {
			t.Errorf("state %d is not half full", i+1)
		}
		yes, no := s.compare(upstream, recorded.next)
		accepted, refused = accepted+yes, refused+no
	}
	t.Logf("%d nodes accepted, %d refused by upstream", accepted, refused)
	if accepted < recordedStates || refused < recordedStates/4 {
		t.Error("the states are too much alike")
	}
}
