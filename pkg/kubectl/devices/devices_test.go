// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// nodeOf returns a node with these resources, named without the prefix.
func nodeOf(t testing.TB, capacity, allocatable map[string]int64) *corev1.Node {
	t.Helper()
	info := types.NewNodeInfoWithName("n")
	for name, quantity := range capacity {
		types.AddGroupResource(info.Capacity, name, quantity)
	}
	for name, quantity := range allocatable {
		types.AddGroupResource(info.Allocatable, name, quantity)
	}
	value, err := deviceinfo.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Annotations: map[string]string{deviceinfo.Annotation: value},
	}}
}

// podOf returns a pod that is bound to the node, with what its only container is allocated.
func podOf(t testing.TB, name string, held map[string]int64) *corev1.Pod {
	t.Helper()
	container := types.NewContainerInfo()
	for name, quantity := range held {
		resource := types.ResourceName(types.DeviceGroupPrefix + "/" + name)
		container.DevRequests[resource], container.AllocateFrom[resource] = quantity, resource
	}
	info := types.NewPodInfo()
	info.Name, info.NodeName, info.RunningContainers["c"] = name, "n", *container
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: apitypes.UID(name),
			Annotations: map[string]string{deviceinfo.Annotation: value},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}},
	}
}

func TestPathsAreOrderedByGroupAndNumber(t *testing.T) {
	want := []string{
		"", "gpu/gpu-01", "gpu/gpu-1", "gpu/gpu-2", "gpu/gpu-2b", "gpu/gpu-10", "gpu/x", "gpugrp/2", "gpugrp/2/gpu/z",
		"gpugrp/10/gpu/a", "gpugrp/18446744073709551616/gpu/a",
	}
	got := slices.Clone(want)
	for range 20 {
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, comparePaths)
		if !slices.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	}
}

// Groups of up to three levels with random uses, against a search through all groups.
func TestTheLargestFreeGroupIsTheLargestOfAll(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		node := &Node{Name: "n"}
		members := map[string][]*Device{} // of each group, the node and single devices included
		for i := range 1 + random.IntN(12) {
			d := &Device{Kind: "gpu", ID: fmt.Sprint(i), Health: Healthy, Use: Free}
			groups := []string{""}
			for level := range random.IntN(3) {
				d.Path += fmt.Sprintf("l%d/%d/", level, random.IntN(2))
				groups = append(groups, strings.TrimSuffix(d.Path, "/"))
			}
			d.Path += "gpu/" + d.ID
			switch random.IntN(5) {
			case 0:
				d.Use = Whole
			case 1:
				d.Use = Shared
			case 2:
				d.Health = Unhealthy
			}
			switch random.IntN(6) {
			case 0:
				d.Taints = []Taint{{Key: deviceinfo.CordonKey, Effect: corev1.TaintEffectNoSchedule}}
			case 1:
				d.Taints = []Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoExecute}}
			}
			for _, group := range append(groups, d.Path) {
				members[group] = append(members[group], d)
			}
			node.Devices = append(node.Devices, d)
		}
		want := 0
		for _, group := range members {
			forAll := slices.DeleteFunc(slices.Clone(group), func(d *Device) bool {
				return d.Health != Healthy || len(d.Taints) > 0
			})
			if !slices.ContainsFunc(forAll, func(d *Device) bool { return d.Use != Free }) {
				want = max(want, len(forAll))
			}
		}
		usage := NewUsage([]*Node{node}).Items[0]
		got := 0
		if usage.LargestFree != nil {
			got = usage.LargestFree.Free
			free := slices.DeleteFunc(slices.Clone(members[usage.LargestFree.Path]), func(d *Device) bool {
				return d.Health != Healthy || len(d.Taints) > 0 || d.Use != Free
			})
			if len(free) != got {
				t.Fatalf("seed %d: group %q has %d free devices, not %d", seed, usage.LargestFree.Path, len(free), got)
			}
		}
		if got != want {
			t.Fatalf("seed %d: the largest free group has %d devices, want %d", seed, got, want)
		}
		sum := usage.Free + usage.Cordoned + usage.Tainted + usage.Shared + usage.Whole + usage.Unhealthy
		if sum != usage.Devices {
			t.Fatalf("seed %d: %d devices count as something, of %d", seed, sum, usage.Devices)
		}
	}
}

func TestHoldersOfDevicesAreListed(t *testing.T) {
	two := map[string]int64{"grp/0/gpu/a/cards": 1, "grp/0/gpu/a/memory": 100, "grp/1/gpu/b/cards": 1}
	renumbered := map[string]int64{"grp/7/gpu/b/cards": 1}
	for name, test := range map[string]struct {
		capacity, allocatable map[string]int64
		pods                  []map[string]int64
		want                  string // device, health, use, holders
	}{
		"no device is held": {two, two, nil, "a Healthy Free, b Healthy Free"},
		"a part is held": {
			two, two, []map[string]int64{{"grp/0/gpu/a/memory": 40}}, "a Healthy Shared p0, b Healthy Free",
		},
		"parts that are all there is, together": {
			two, two, []map[string]int64{{"grp/0/gpu/a/memory": 40}, {"grp/0/gpu/a/memory": 60}},
			"a Healthy Shared p0 p1, b Healthy Free",
		},
		"a part of an unhealthy device": {
			two, map[string]int64{"grp/1/gpu/b/cards": 1}, []map[string]int64{{"grp/0/gpu/a/memory": 40}},
			"a Unhealthy Shared p0, b Healthy Free",
		},
		"all of an unhealthy device": {
			two, map[string]int64{"grp/1/gpu/b/cards": 1},
			[]map[string]int64{{"grp/0/gpu/a/cards": 1, "grp/0/gpu/a/memory": 100}},
			"a Unhealthy Whole p0, b Healthy Free",
		},
		"the card alone": {
			two, two, []map[string]int64{{"grp/0/gpu/a/cards": 1}}, "a Healthy Whole p0, b Healthy Free",
		},
		"a group that has another number now": {
			two, two, []map[string]int64{renumbered}, "a Healthy Free, b Healthy Whole p0",
		},
		"a device that the node does not list": {
			two, two, []map[string]int64{{"grp/0/gpu/c/cards": 1}}, "a Healthy Free, c Gone Whole p0, b Healthy Free",
		},
		"two devices of one ID": {
			map[string]int64{"grp/0/gpu/b/cards": 1, "grp/1/gpu/b/cards": 1},
			map[string]int64{"grp/0/gpu/b/cards": 1, "grp/1/gpu/b/cards": 1},
			[]map[string]int64{renumbered}, "b Healthy Free, b Healthy Free, b Gone Whole p0",
		},
		"a device that is unhealthy while it is held": {
			two, map[string]int64{"grp/0/gpu/a/cards": 1}, []map[string]int64{renumbered},
			"a Healthy Free, b Unhealthy Whole p0",
		},
		"a mask, which is never used up": {
			map[string]int64{"nic/x/enumPorts": 15}, map[string]int64{"nic/x/enumPorts": 15},
			[]map[string]int64{{"nic/x/enumPorts": 1}}, "x Healthy Free p0",
		},
		"more than can be counted": {
			two, two, []map[string]int64{{"grp/0/gpu/a/memory": math.MaxInt64}, {"grp/0/gpu/a/memory": math.MaxInt64}},
			"a Healthy Whole p0 p1, b Healthy Free",
		},
		"a resource of the node itself": {
			map[string]int64{"slots": 4}, map[string]int64{"slots": 4}, []map[string]int64{{"slots": 1}},
			" Healthy Shared p0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for i, held := range test.pods {
				pods = append(pods, podOf(t, fmt.Sprint("p", i), held))
			}
			var got []string
			for _, d := range NewNode(nodeOf(t, test.capacity, test.allocatable), pods, time.Time{}).Devices {
				text := fmt.Sprintf("%s %s %s", d.ID, d.Health, d.Use)
				for _, h := range d.Holders {
					text += " " + h.Pod
				}
				for _, r := range d.Resources {
					if r.Used < 0 {
						t.Errorf("%d of %s is used", r.Used, r.Name)
					}
				}
				got = append(got, text)
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("got  %q\nwant %q", text, test.want)
			}
		})
	}
}

// The scheduler counts what init containers need before the others run, and not on top of them.
func TestAnInitContainerSharesItsDeviceWithTheNext(t *testing.T) {
	all := map[string]int64{"gpu/a/memory": 100}
	pod := podOf(t, "p", map[string]int64{"gpu/a/memory": 60})
	pod.Spec.InitContainers = []corev1.Container{{Name: "first"}}
	pod.Annotations[deviceinfo.Annotation] = strings.Replace(pod.Annotations[deviceinfo.Annotation],
		`"runningcontainer"`, `"initcontainer":{"first":{"devrequests":{"resource/group/gpu/a/memory":80},`+
			`"allocatefrom":{"resource/group/gpu/a/memory":"resource/group/gpu/a/memory"}}},"runningcontainer"`, 1)
	d := NewNode(nodeOf(t, all, all), []*corev1.Pod{pod}, time.Time{}).Devices[0]
	if r := d.Resources[0]; r.Used != 80 || len(d.Holders) != 2 {
		t.Errorf("%d are used by %d containers, want 80 by 2", r.Used, len(d.Holders))
	}
}

// Who has one resource of a device as a whole has all of it: no other pod gets the rest.
func TestADeviceThatOnePodHasAloneIsUsedCompletely(t *testing.T) {
	all := map[string]int64{"gpu/a/cards": 1, "gpu/a/memory": 80, "gpu/a/enumType": 4}
	for name, test := range map[string]struct {
		holds, allocatable map[string]int64
		want               string
	}{
		"the card":                     {map[string]int64{"gpu/a/cards": 1}, all, "cards 1, enumType 0, memory 80"},
		"all memory":                   {map[string]int64{"gpu/a/memory": 80}, all, "cards 1, enumType 0, memory 80"},
		"a part of the memory":         {map[string]int64{"gpu/a/memory": 20}, all, "cards 0, enumType 0, memory 20"},
		"the card of an unhealthy one": {map[string]int64{"gpu/a/cards": 1}, nil, "cards 1, enumType 0, memory 80"},
		"nothing":                      {nil, all, "cards 0, enumType 0, memory 0"},
		"a part of an unhealthy one":   {map[string]int64{"gpu/a/memory": 20}, nil, "cards 0, enumType 0, memory 20"},
	} {
		var pods []*corev1.Pod
		if test.holds != nil {
			pods = append(pods, podOf(t, "p", test.holds))
		}
		node := NewNode(nodeOf(t, all, test.allocatable), pods, time.Time{})
		var texts []string
		for _, r := range node.Devices[0].Resources {
			texts = append(texts, fmt.Sprint(r.Name, " ", r.Used))
		}
		if got := strings.Join(texts, ", "); got != test.want {
			t.Errorf("%s: used are %s, want %s", name, got, test.want)
		}
	}
}

func TestANodeWithoutReadableDevicesHasAProblem(t *testing.T) {
	node := nodeOf(t, map[string]int64{"gpu/a/cards": 1}, map[string]int64{"gpu/a/cards": 1})
	broken := node.DeepCopy()
	broken.Annotations[deviceinfo.Annotation] = "["
	malformed := nodeOf(t, nil, map[string]int64{"gpu/cards": 1, "gpu/a/cards": 1})
	garbled := node.DeepCopy()
	garbled.Annotations[deviceinfo.HoldersAnnotation] = "["
	for name, test := range map[string]struct {
		node    *corev1.Node
		want    string
		devices int
	}{
		"the inventory is not JSON":           {broken, "unreadable inventory", 0},
		"a resource has no path":              {malformed, "no devices are scheduled", 1},
		"the report of holders is not a list": {garbled, "unreadable report of holders", 1},
	} {
		got := NewNode(test.node, nil, time.Time{})
		if len(got.Problems) != 1 || !strings.Contains(got.Problems[0], test.want) || len(got.Devices) != test.devices {
			t.Errorf("%s: %d devices and the problems %q; want %d and %q",
				name, len(got.Devices), got.Problems, test.devices, test.want)
		}
	}
}

func TestReasonIsShort(t *testing.T) {
	for message, want := range map[string]string{
		"0/4 nodes are available: 4 have no free GPU.":                                "4 have no free GPU",
		"0/4 nodes are available: 1 a, 3 b. preemption: 0/4 nodes are available: 4 c": "1 a, 3 b",
		"timeout": "timeout",
		"":        "",
	} {
		if got := (&Pod{State: Waiting, Message: message}).Reason(); got != want {
			t.Errorf("%q becomes %q, want %q", message, got, want)
		}
	}
}

// What is shown of two nodes is the same for every order of pods and of maps.
func TestTheOrderIsAlwaysTheSame(t *testing.T) {
	all := map[string]int64{}
	var pods []*corev1.Pod
	for i := range 12 {
		all[fmt.Sprintf("gpu/%d/memory", i%3)] = 100
		pods = append(pods, podOf(t, fmt.Sprint("p", i), map[string]int64{
			fmt.Sprintf("gpu/%d/memory", i%3): 10, fmt.Sprintf("gpu/%d/memory", (i+1)%3): 5,
		}))
	}
	text := func() string {
		rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		var text strings.Builder
		for _, d := range NewNode(nodeOf(t, all, all), pods, time.Time{}).Devices {
			fmt.Fprintf(&text, "%+v\n", *d)
		}
		return text.String()
	}
	first := text()
	for range 20 {
		if next := text(); next != first {
			t.Fatalf("first\n%sthen\n%s", first, next)
		}
	}
}

// Each node of 8 GPUs, of which pods hold 6, compared with reading the annotations alone.
func BenchmarkNodes(b *testing.B) {
	const nodes = 5000
	all := map[string]int64{}
	for i := range 8 {
		name := fmt.Sprintf("gpugrp1/%d/gpugrp0/%d/gpu/%d/", i/4, i/2, i)
		all[name+"cards"], all[name+"memory"] = 1, 80<<30
	}
	node := nodeOf(b, all, all)
	var pods []*corev1.Pod
	for i := range 6 {
		held := maps.Clone(all)
		maps.DeleteFunc(held, func(name string, _ int64) bool {
			return !strings.Contains(name, fmt.Sprintf("gpu/%d/", i))
		})
		pods = append(pods, podOf(b, fmt.Sprint("p", i), held))
	}
	b.ReportAllocs()
	var reading, showing int64
	for b.Loop() {
		begin := b.Elapsed()
		for range nodes {
			if _, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation]); err != nil {
				b.Fatal(err)
			}
			for _, pod := range pods {
				if _, err := deviceinfo.PodAllocation(pod); err != nil {
					b.Fatal(err)
				}
			}
		}
		read := b.Elapsed()
		list := make([]*Node, nodes)
		for i := range list {
			list[i] = NewNode(node, pods, time.Time{})
		}
		if usage := NewUsage(list); usage.Totals[0].Free != 2*nodes {
			b.Fatalf("%d are free", usage.Totals[0].Free)
		}
		reading += int64(read - begin)
		showing += int64(b.Elapsed() - read)
	}
	b.ReportMetric(float64(showing)/float64(cmp.Or(reading, 1)), "times-reading-alone")
	b.ReportMetric(float64(showing)/float64(b.N)/1e9, "s/5000-nodes")
}

// A node chooses how many kinds of devices it lists. The memory that is allocated stands for the
// work: it grows with the list, not with its square.
func TestANodeOfManyKindsCostsWorkInProportion(t *testing.T) {
	allocated := func(kinds int) float64 {
		resources := map[string]int64{}
		for i := range kinds {
			resources[fmt.Sprintf("kind%d/d/cards", i)] = 1
			resources[fmt.Sprintf("gpugrp1/0/gpugrp0/%d/other%d/d/cards", i, i)] = 1
		}
		node := nodeOf(t, resources, resources)
		result := testing.Benchmark(func(b *testing.B) {
			for range b.N {
				if usage := NewUsage([]*Node{NewNode(node, nil, time.Time{})}); len(usage.Items) != 2*kinds {
					b.Fatalf("%d kinds, want %d", len(usage.Items), 2*kinds)
				}
			}
		})
		return float64(result.AllocedBytesPerOp())
	}
	few, many := allocated(100), allocated(800)
	if many > 16*few {
		t.Errorf("800 kinds allocate %.0f bytes and 100 kinds %.0f: %.0f times as much, want 8 or so", many, few,
			many/few)
	}
}
