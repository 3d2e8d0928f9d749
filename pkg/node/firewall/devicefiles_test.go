// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// fakeFiles are the device files of a node, of which some have several names.
type fakeFiles struct{}

var numbers = map[string]DeviceNumber{
	"/dev/nvidia0":             {Major: 195},
	"/dev/nvidiactl":           {Major: 195, Minor: 255},
	"/dev/nvidia-uvm":          {Major: 511},
	"/dev/char/195:0":          {Major: 195},
	"/proc/1/root/dev/nvidia0": {Major: 195},
	"/dev/mine":                {Major: 195, Minor: 7},
	"/dev/shm/link":            {Major: 1, Minor: 3},

	"/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/v/link": {Major: 1, Minor: 3},

	"/dev/dri/renderD128": {Major: 226, Minor: 128},

	"/dev/dri/by-path/pci-0000:01:00.0-render": {Major: 226, Minor: 128},

	"/dev/video0":   {Major: 81},
	"/dev/uinput":   {Major: 10, Minor: 223},
	"/dev/hisi_hdc": {Major: 10, Minor: 57},
	"/dev/sda":      {Block: true, Major: 8},
	"/dev/sg0":      {Major: 8},
	"/dev/mtgpu.0":  {Major: 240},
}

func (fakeFiles) Number(path string) (DeviceNumber, error) {
	number, is := numbers[filepath.Clean(path)]
	if !is {
		return number, errors.New("no such device")
	}
	return number, nil
}

func (fakeFiles) Glob(pattern string) []string {
	var all []string
	for path := range numbers {
		if matched, err := filepath.Match(pattern, path); err == nil && matched {
			all = append(all, path)
		}
	}
	return all
}

func TestADeviceFileIsIdentifiedUnderEveryName(t *testing.T) {
	nvidia := node{own: []types.ResourceName{"nvidia.com/gpu"}}
	ascend := node{own: []types.ResourceName{"huawei.com/Ascend910"}}
	unknown := node{own: []types.ResourceName{"vendor.example/widget"}}
	declared := node{
		own:     []types.ResourceName{"mthreads.com/gpu"},
		vendors: []Vendor{{Name: "mthreads.com", DeviceFiles: []string{"/dev/mtgpu*"}}},
	}
	for _, test := range []struct {
		what string
		node node
		file string
		want bool // refused
	}{
		{"the GPU by its name", nvidia, "/dev/nvidia0", true},
		{"by a path that is written otherwise", nvidia, "/dev//dri/../nvidia0", true},
		{"by its number", nvidia, "/dev/char/195:0", true},
		{"through another process", nvidia, "/proc/1/root/dev/nvidia0", true},
		{"by a node that somebody made", nvidia, "/dev/mine", true},
		{"its render node", nvidia, "/dev/dri/renderD128", true},
		{"that by its place", nvidia, "/dev/dri/by-path/pci-0000:01:00.0-render", true},
		{"one that does not exist yet", nvidia, "/dev/nvidia9", true},
		{"what is no device file", nvidia, "/dev/nothing", true},
		{"a path that is not absolute", nvidia, "dev/nvidia0", true},
		{"a link in a volume, now to another device", nvidia,
			"/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/v/link", true},
		{"a link in shared memory, now to another device", nvidia, "/dev/shm/link", true},
		{"the same by a longer path", nvidia, "/dev/dri/../shm/link", true},
		{"FUSE", nvidia, "/dev/fuse", false},
		{"FUSE by a path that is written otherwise", nvidia, "/dev//./fuse", false},
		{"what is FUSE only while a link in shared memory says so", nvidia, "/dev/shm/link/../fuse", true},
		{"FUSE by a path that climbs", nvidia, "/dev/net/../fuse", true},
		{"a camera", nvidia, "/dev/video0", false},
		{"a disk whose number is a character device's", nvidia, "/dev/sda", false},
		{"a device of a driver that shares its major number", ascend, "/dev/uinput", false},
		{"the one of that number", ascend, "/dev/hisi_hdc", true},
		{"any other, where the vendor's are not known", unknown, "/dev/video0", true},
		{"FUSE there", unknown, "/dev/fuse", false},
		{"a camera, where the configuration declares them", declared, "/dev/video0", false},
		{"one that the configuration declares", declared, "/dev/mtgpu.0", true},
	} {
		for _, key := range []string{"io.kubernetes.cri-o.Devices", "devices.crio.io"} {
			refused := test.node.guard(t).Refused(Container{
				PodAnnotations: map[string]string{key: "/dev/fuse:/dev/x, " + test.file + ":/dev/y:rwm"},
			})
			if (len(refused) > 0) != test.want {
				t.Errorf("%s, by %s: refused for %v, want %t", test.what, key, refused, test.want)
			}
		}
	}
}

// readFiles counts what is read of the node's device files, by the path.
type readFiles struct {
	nodeFiles
	reads map[string]int
}

func (f readFiles) Number(path string) (DeviceNumber, error) {
	f.reads[path]++
	return f.nodeFiles.Number(path)
}

func (f readFiles) Glob(pattern string) []string {
	f.reads[pattern]++
	return f.nodeFiles.Glob(pattern)
}

func TestAnAnnotationCausesFewReadsOfDeviceFiles(t *testing.T) {
	const volume = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~nfs/does-not-answer/file"
	many := func(element string) string { return strings.Repeat(element+",", 20_000) }
	var different []string
	for i := range 20_000 {
		different = append(different, fmt.Sprintf("/dev/x%d", i))
	}
	for what, test := range map[string]struct {
		value string
		want  bool // refused
	}{
		"a device that is no vendor's, twice":          {"/dev//null,/dev/null", false},
		"the same too often":                           {many("/dev//null"), true},
		"another device, twice":                        {"/dev/video0,/dev/video0", false},
		"as many devices as it may name":               {strings.Join(different[:maxNames], ","), true},
		"more than that":                               {strings.Join(different, ","), true},
		"more than that in several annotations":        {strings.Join(different[:maxNames], ","), true},
		"a file on a file system that does not answer": {volume, true},
		"nothing": {" , ,", false},
	} {
		for _, key := range []string{"devices.crio.io/all", "devices.crio.io/main"} {
			n := node{own: []types.ResourceName{"nvidia.com/gpu", "amd.com/gpu"}}
			guard := n.guard(t)
			files := readFiles{nodeFiles{fakeFiles{}, n}, map[string]int{}}
			guard.firewall.options.Files = files
			annotations := map[string]string{key: test.value}
			if strings.HasSuffix(what, "in several annotations") {
				for i := range 100 {
					annotations[fmt.Sprintf("%s-%d", key, i)] = test.value
				}
			}
			refused := guard.Refused(Container{PodAnnotations: annotations})
			if (len(refused) > 0) != test.want {
				t.Errorf("%s: refused %t, want %t", what, !test.want, test.want)
			}
			sum := 0
			for path, times := range files.reads {
				sum += times
				if strings.HasPrefix(path, "/var") {
					t.Errorf("%s: %s was read", what, path)
				}
			}
			// Both vendors' files are read once, and each name that is left.
			if limit := maxNames + 2*len(numbers); sum > limit {
				t.Errorf("%s: %d reads, want at most %d", what, sum, limit)
			}
		}
	}
}

func TestAnAnnotationThatNamesTooManyDevicesIsRefused(t *testing.T) {
	guard := node{own: []types.ResourceName{"nvidia.com/gpu"}}.guard(t)
	var names []string
	for i := range maxNames + 1 {
		names = append(names, fmt.Sprintf("vendor.example/device=%d", i))
	}
	for _, test := range []struct {
		names []string
		want  bool
	}{{names, true}, {names[:maxNames], false}, {slices.Repeat(names[:1], maxNames+1), true}} {
		refused := guard.Refused(Container{
			PodAnnotations: map[string]string{"cdi.k8s.io/x": strings.Join(test.names, ",")},
		})
		if (len(refused) > 0) != test.want {
			t.Errorf("%d names: refused for %v, want %t", len(test.names), refused, test.want)
		}
		if test.want && !strings.Contains(refused[0].Text, "more than 64 devices") {
			t.Errorf("it says %q", refused[0].Text)
		}
	}
}

func TestAnAnnotationThatNamesTooManyDevicesIsOneAttempt(t *testing.T) {
	guard := node{own: []types.ResourceName{"nvidia.com/gpu"}}.guard(t)
	keys := map[string]string{}
	for i := range 20_000 {
		keys[fmt.Sprintf("cdi.k8s.io/%d", i)] = "x"
	}
	for name, annotations := range map[string]map[string]string{
		"many keys": keys, "many names": {"cdi.k8s.io/x": strings.Repeat("a,b,", 60_000)},
	} {
		var refused []Attempt
		allocations := testing.AllocsPerRun(1, func() {
			refused = guard.Refused(Container{PodAnnotations: annotations})
		})
		if len(refused) == 0 || len(refused) > maxNames+1 {
			t.Errorf("%s: %d attempts", name, len(refused))
		}
		if allocations > maxNames*20 {
			t.Errorf("%s: %v allocations", name, allocations)
		}
	}
}
