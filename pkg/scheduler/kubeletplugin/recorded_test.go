// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

var (
	rewrite = flag.Bool("rewrite", false, "rewrite the recorded allocations")
	dump    = flag.String("dump", "", "write every random case and its allocation to this file")
)

const (
	recorded = "testdata/allocations.txt"         // the first cases of the first block, for people
	digests  = "testdata/allocations.digests.txt" // the digest of each block of cases
	// Each case of each block is part of a digest.
	blocks, casesPerBlock, casesInFull = 60, 1000, 12
)

// A refactoring of the allocator keeps each of these allocations: the devices, the names of the
// requests, the scores and the texts of the refusals.
func TestAllocationsMatchTheRecordedOnes(t *testing.T) {
	var inFull, sums, all bytes.Buffer
	inFull.WriteString(legend)
	fits, refusals := 0, map[string]bool{}
	for block := range blocks {
		random := rand.New(rand.NewPCG(12, uint64(block)))
		digest := sha256.New()
		for i := range casesPerBlock {
			text, fitted, refusal := randomCase(random)
			digest.Write([]byte(text))
			title := fmt.Sprintf("\n== case %d of block %d\n", i, block)
			if block == 0 && i < casesInFull {
				inFull.WriteString(title + align(text))
			}
			if *dump != "" {
				all.WriteString(title + align(text))
			}
			if fitted {
				fits++
			} else {
				refusals[refusal] = true
			}
		}
		fmt.Fprintf(&sums, "block %d: %x\n", block, digest.Sum(nil)[:8])
	}
	t.Logf("%d of %d pods fit; the others have %d different reasons", fits, blocks*casesPerBlock, len(refusals))
	if *dump != "" {
		if err := os.WriteFile(*dump, all.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, recorded, inFull.String())
	compare(t, digests, sums.String())
}

// compare fails the test if text is not what the file has, which -rewrite writes.
func compare(t *testing.T, file, text string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s (-recorded +now):\n%s\n-dump writes every case, for a comparison with the previous commit; "+
			"-rewrite records an intended change", file, diff)
	}
}

var randomResources = []types.ResourceName{"intel.com:qat", "nvidia.com:gpu", "vendor.example:nic"}

func TestParsedPodServesManyNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	fitted := 0
	for range 500 {
		first, ids := randomNode(random)
		second, _ := randomNode(random)
		original, spec := randomPod(random, ids)
		read := New().ReadPod(original, spec)
		New().ForPod(read, nil, 0).PodFitsDevice(first, original.Clone(), true)

		want, got := original.Clone(), original.Clone()
		fresh := New().ForPod(New().ReadPod(original, spec), nil, 0)
		wantFits, wantReasons, _ := fresh.PodFitsDevice(second, want, true)
		fits, reasons, _ := New().ForPod(read, nil, 0).PodFitsDevice(second, got, true)
		if diff := cmp.Diff(want, got); diff != "" || fits != wantFits {
			t.Fatalf("on its second node the pod fits: %v, want %v (-want +got):\n%s", fits, wantFits, diff)
		}
		if fits {
			fitted++
		} else if reasons[0].GetReason() != wantReasons[0].GetReason() {
			t.Fatalf("on its second node: %v, want %v", reasons, wantReasons)
		}
	}
	if fitted < 50 || fitted > 450 {
		t.Errorf("%d of 500 pods fit their second node", fitted)
	}
}

// randomCase allocates devices of a random node to a random pod, and returns both with the outcome.
func randomCase(random *rand.Rand) (text string, fits bool, refusal string) {
	var node *types.NodeInfo
	var pod *types.PodInfo
	var spec []grouptree.Container
	switch random.IntN(50) {
	case 0:
		node, pod, spec = manyPlaceholders(random)
	case 1, 2, 3, 4, 5, 6, 7, 8, 9:
		node, pod, spec = scarceDevices(random)
	default:
		var ids []string
		node, ids = randomNode(random)
		pod, spec = randomPod(random, ids)
	}
	original := pod.Clone()
	call := New().ForPod(New().ReadPod(original, spec), nil, 0)
	fits, reasons, score := call.PodFitsDevice(node, pod, true)
	var why reason
	if !fits {
		why = reasons[0].(reason)
		refusal = why.Error()
	}
	text = transcript{node, spec, original}.text(func(out *strings.Builder) {
		if fits {
			writeAllocation(out, pod, score)
			return
		}
		evict := "evicting pods could help"
		if why.unresolvable {
			evict = "evicting pods does not help"
		}
		fmt.Fprintf(out, "gets\trefused\t%s; %s\n", refusal, evict)
	})
	return text, fits, refusal
}

// randomNode returns a node and the IDs of its devices.
func randomNode(random *rand.Rand) (*types.NodeInfo, []string) {
	node := types.NewNodeInfoWithName("n1")
	var ids []string
	places := []string{"0", "1", "2", "3", "0-1", "none"}
	random.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	most := 1 + random.IntN(6)
	for _, place := range places[:1+random.IntN(len(places))] {
		for _, resource := range randomResources {
			for i := range random.IntN(most + 1) {
				id := fmt.Sprint(resource[:1], place, "-", i)
				ids = append(ids, id)
				name := types.ResourceName(fmt.Sprintf("resource/group/numa/%s/%s/%s/device", place, resource, id))
				node.Allocatable[name] = 1
				switch random.IntN(8) {
				case 0:
					node.Allocatable[name] = 0
				case 1, 2:
					node.Used[name] = 1
				}
			}
		}
	}
	node.Allocatable["resource/group/gpugrp1/0/gpugrp0/0/gpu/a/cards"] = 1
	return node, append(ids, "absent")
}

// randomPod returns a pod of up to four containers.
func randomPod(random *rand.Rand, ids []string) (*types.PodInfo, []grouptree.Container) {
	pod := types.NewPodInfo()
	pod.Name = "p"
	var spec []grouptree.Container
	containers, mostly := 1, random.IntN(3) // mostly regular, mixed
	if random.IntN(2) == 0 {
		containers += random.IntN(4)
	}
	for i := range containers {
		entry := grouptree.Container{Name: fmt.Sprint("c", (i*7+3)%5)}
		if mostly > 0 {
			entry.Kind = []grouptree.Kind{grouptree.Regular, grouptree.Init, grouptree.Sidecar}[random.IntN(3)]
		}
		info := types.ContainerInfo{KubeRequests: types.ResourceList{}, Requests: types.ResourceList{}}
		for _, resource := range []types.ResourceName{"intel.com/qat", "nvidia.com/gpu", "vendor.example/nic", "cpu"} {
			if random.IntN(2) == 0 {
				info.KubeRequests[resource] = random.Int64N(3)
			}
			if random.IntN(40) == 0 {
				info.KubeRequests[resource] = random.Int64N(12)
			}
		}
		if random.IntN(2) == 0 {
			for range 1 + random.IntN(4) {
				name, quantity := randomRequest(random, ids)
				info.Requests[name] = quantity
			}
		}
		if entry.Kind == grouptree.Init {
			pod.InitContainers[entry.Name] = info
		} else {
			pod.RunningContainers[entry.Name] = info
		}
		if random.IntN(30) > 0 { // otherwise the spec does not list it
			spec = append(spec, entry)
		}
	}
	if random.IntN(20) == 0 {
		resource := randomResources[random.IntN(len(randomResources))]
		pod.Requests[types.ResourceName(fmt.Sprintf("numa/A/%s/=%s/device", resource, ids[random.IntN(len(ids))]))] = 0
	}
	if random.IntN(100) == 0 {
		pod.Requests["numa/A/nvidia.com:gpu"] = 1
	}
	return pod, spec
}

// scarceDevices returns a node with hardly as many GPUs as a pod with sidecars and init containers
// needs.
func scarceDevices(random *rand.Rand) (*types.NodeInfo, *types.PodInfo, []grouptree.Container) {
	node, pod := types.NewNodeInfoWithName("n1"), types.NewPodInfo()
	var spec []grouptree.Container
	var ids []string
	for i := range 2 + random.IntN(4) {
		numa := []string{"0", "0", "1", "1", "none"}[random.IntN(5)]
		ids = append(ids, fmt.Sprint("g", i))
		node.Allocatable[types.ResourceName(fmt.Sprintf("resource/group/numa/%s/nvidia.com:gpu/g%d/device", numa,
			i))] = 1
	}
	for i := range 3 + random.IntN(3) {
		entry := grouptree.Container{Name: fmt.Sprint("c", (i*7+3)%8), Kind: []grouptree.Kind{grouptree.Init,
			grouptree.Sidecar}[random.IntN(2)]}
		if i > 1 && random.IntN(3) == 0 {
			entry.Kind = grouptree.Regular
		}
		spec = append(spec, entry)
		count := 1 + random.Int64N(7)/6
		info := types.ContainerInfo{KubeRequests: types.ResourceList{"nvidia.com/gpu": count},
			Requests: types.ResourceList{}}
		switch random.IntN(6) {
		case 0, 1:
			id := ids[random.IntN(len(ids))]
			info.Requests[types.ResourceName("numa/A/nvidia.com:gpu/="+id+"/device")] = 1
		case 2:
			info.Requests[[]types.ResourceName{"numa/A/nvidia.com:gpu",
				"numa/=1/nvidia.com:gpu"}[random.IntN(2)]] = count
		}
		if entry.Kind == grouptree.Init {
			pod.InitContainers[entry.Name] = info
		} else {
			pod.RunningContainers[entry.Name] = info
		}
	}
	return node, pod, spec
}

// manyPlaceholders returns a node with enough GPUs, and a pod whose many placeholders hardly fit
// its NUMA nodes.
func manyPlaceholders(random *rand.Rand) (*types.NodeInfo, *types.PodInfo, []grouptree.Container) {
	node, pod := types.NewNodeInfoWithName("n1"), types.NewPodInfo()
	for numa := range 7 {
		for _, resource := range randomResources[1:] {
			for i := range 3 + random.IntN(5) {
				node.Allocatable[types.ResourceName(fmt.Sprintf("resource/group/numa/%d/%s/%d-%d/device", numa,
					resource, numa, i))] = 1
			}
		}
	}
	requests := types.ResourceList{}
	for i := range 9 + random.IntN(4) {
		requests[types.ResourceName(fmt.Sprintf("numa/p%d/nvidia.com:gpu", i))] = 2 + random.Int64N(2)
		if random.IntN(2) == 0 {
			requests[types.ResourceName(fmt.Sprintf("numa/p%d/vendor.example:nic", i))] = 1 + random.Int64N(3)
		}
	}
	pod.RunningContainers["main"] = types.ContainerInfo{Requests: requests}
	return node, pod, []grouptree.Container{{Name: "main"}}
}

// randomRequest returns one request of an annotation.
func randomRequest(random *rand.Rand, ids []string) (types.ResourceName, int64) {
	resource := randomResources[random.IntN(len(randomResources))]
	numa := []string{"A", "A", "A", "A", "B", "B", "B", "C", "C", "=0", "=0-1", "=none"}[random.IntN(12)]
	if random.IntN(200) == 0 {
		numa = "="
	}
	prefix := ""
	if random.IntN(8) == 0 {
		prefix = "resource/group/"
	}
	name, quantity := fmt.Sprintf("%snuma/%s/%s", prefix, numa, resource), 1+random.Int64N(2)
	switch random.IntN(8) {
	case 0, 1:
		name, quantity = fmt.Sprint(name, "/", random.IntN(3), "/device"), 1
	case 2:
		name, quantity = fmt.Sprint(name, "/=", ids[random.IntN(len(ids))], "/device"), 1
	case 3:
		name, quantity = fmt.Sprint(name, "/=", ids[random.IntN(len(ids))], "/device"), 0
	case 4:
		if random.IntN(20) == 0 {
			name, quantity = []string{name, name + "/x/device", name + "/=/device"}[random.IntN(3)], random.Int64N(3)-1
		}
	case 5:
		if random.IntN(40) == 0 {
			quantity = kubeletdevice.MaxCount
		}
	}
	return types.ResourceName(name), quantity
}
