// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// published is one recorded placement of the allocator that was published with KubeDevice.
type published struct {
	ID        int            `json:"id"`
	Kind      string         `json:"kind"`
	Node      types.NodeInfo `json:"node"`
	Pod       types.PodInfo  `json:"pod"`
	Published struct {
		Fits    bool                              `json:"fits"`
		Score   float64                           `json:"score"`
		Init    map[string]types.ResourceLocation `json:"initcontainer"`
		Running map[string]types.ResourceLocation `json:"runningcontainer"`
	} `json:"published"`
}

// readPublished returns the recorded placements.
func readPublished(tb testing.TB) []published {
	tb.Helper()
	file, err := os.Open("testdata/published-placements.jsonl.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	var cases []published
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c published
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			tb.Fatal(err)
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	return cases
}

// The walk finds the same placements as the published allocator. Where that found none, the exact
// search may find one, and the placement is valid.
func TestKeepsPublishedPlacements(t *testing.T) {
	cases := readPublished(t)
	if len(cases) != 3000 {
		t.Fatalf("%d recorded placements, want 3000", len(cases))
	}
	placer := NewPlacer(0)
	fits, more := 0, 0
	for _, c := range cases {
		tree := mustTree(t, &c.Node)
		req := mustRequest(t, &c.Pod, nil)
		got := placer.Place(tree, tree.Dense(c.Node.Used), req)
		if !c.Published.Fits {
			if got.Fits {
				more++
				checkValid(t, &scenario{node: c.Node, pod: c.Pod}, tree, req, got)
			}
			continue
		}
		fits++
		if !got.Fits || got.Exact {
			t.Fatalf("case %d (%s): fits=%v exact=%v, want the walk to place it", c.ID, c.Kind, got.Fits, got.Exact)
		}
		if math.Abs(got.Score-c.Published.Score) > 1e-9 {
			t.Errorf("case %d (%s): score %v, want %v", c.ID, c.Kind, got.Score, c.Published.Score)
		}
		placed := c.Pod
		req.Apply(tree, got, &placed)
		for name, want := range c.Published.Running {
			if diff := cmp.Diff(want, placed.RunningContainers[name].AllocateFrom); diff != "" {
				t.Errorf("case %d (%s), container %s (-published +ours):\n%s", c.ID, c.Kind, name, diff)
			}
		}
		for name, want := range c.Published.Init {
			if diff := cmp.Diff(want, placed.InitContainers[name].AllocateFrom); diff != "" {
				t.Errorf("case %d (%s), init container %s (-published +ours):\n%s", c.ID, c.Kind, name, diff)
			}
		}
		checkValid(t, &scenario{node: c.Node, pod: c.Pod}, tree, req, got)
	}
	if fits != 2095 {
		t.Errorf("%d recorded placements fit, want 2095", fits)
	}
	t.Logf("%d placements equal, %d of %d that the published allocator missed", fits, more, len(cases)-fits)
}

func mustTree(tb testing.TB, node *types.NodeInfo) *DeviceTree {
	tb.Helper()
	tree, err := CompileDeviceTree(node.Allocatable, node.Scorer)
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

func mustRequest(tb testing.TB, pod *types.PodInfo, spec []Container) *Request {
	tb.Helper()
	req, err := CompileRequest(pod, spec)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}
