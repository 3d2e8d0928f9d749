// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"path/filepath"
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
