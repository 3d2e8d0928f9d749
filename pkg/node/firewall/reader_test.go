// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestVariablesOfVendorsRuntimesAreKnown(t *testing.T) {
	for _, test := range []struct {
		vendor string
		env    []string
		want   []string // of each reader, by the vendor's table
	}{
		{"nvidia.com", []string{"NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all"}, []string{"all"}},
		{"nvidia.com", []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"}, []string{"void"}},
		{"nvidia.com", []string{"NVIDIA_VISIBLE_DEVICES =all", " NVIDIA_VISIBLE_DEVICES=1"}, nil},
		{"nvidia.com", []string{"NVIDIA_VISIBLE_DEVICES_=all", "nvidia_visible_devices=all"}, nil},
		{"nvidia.com", []string{"NVIDIA_GPU_MEMORY_LIMIT=1", "NVIDIA_GPU_MEMORY_LIMIT=2"}, []string{"1"}},
		{"amd.com", []string{"AMD_VISIBLE_DEVICES=0", "DOCKER_RESOURCE_X=1"}, []string{"reserved 0", "1"}},
		{"amd.com", []string{"DOCKER_RESOURCE_=1", "AMD_VISIBLE_DEVICES=none"}, []string{"reserved 1", "none"}},
		{"amd.com", []string{"AMD_VISIBLE_DEVICES_X=1", " DOCKER_RESOURCE_X=1"}, nil},
		{"habana.ai", []string{"HABANA_VISIBLE_DEVICES=0", "HABANA_VISIBLE_DEVICES=1"}, []string{"0", "1"}},
		{"habana.ai", []string{"HABANA_VISIBLE_DEVICES_X=all", "HABANA_VISIBLE_DEVICES=none"}, []string{"all", "none"}},
		{"habana.ai", []string{"HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES=none"}, []string{"bare", "none"}},
		{"huawei.com", []string{"ASCEND_VISIBLE_DEVICES=0", "ASCEND_VISIBLE_DEVICES=1"}, []string{"1"}},
		{
			"huawei.com", []string{"ASCEND_VISIBLE_DEVICES=Ascend910-0", "ASCEND_VISIBLE_DEVICES="},
			[]string{"", "Ascend910-0"},
		},
		{"huawei.com", []string{"ASCEND_VISIBLE_DEVICES =0"}, nil},
		{"huawei.com", []string{" ASCEND_VNPU_SPECS =vir04", "ASCEND_VNPU_SPECS=vir01"}, []string{"vir04", "vir01"}},
		{"huawei.com", []string{"MOUNT_BY_RUNTIME_FOR_DP="}, []string{""}},
		{"huawei.com", []string{"ASCEND_RUNTIME_OPTIONS=VIRTUAL", "ASCEND_RUNTIME_OPTIONS=NODRV"}, []string{"VIRTUAL"}},
		{"huawei.com", []string{" ASCEND_RUNTIME_OPTIONS=VIRTUAL", "ASCEND_ALLOW_LINK=True"}, []string{"True"}},
		{"xilinx.com", []string{"XILINX_VISIBLE_DEVICES=all", "XILINX_VISIBLE_DEVICES="}, []string{""}},
		{"xilinx.com", []string{"XILINX_VISIBLE_CARDS=0", "XILINX_VISIBLE_DEVICES=1"}, []string{"1", "0"}},
	} {
		i := slices.IndexFunc(vendors, func(v *vendor) bool { return v.name == test.vendor })
		var got []string
		for _, r := range vendors[i].readers {
			for _, t := range r.obeys(test.env) {
				if t.bare {
					t.value = "bare"
				}
				if t.earlier {
					t.value = "reserved " + t.value
				}
				got = append(got, t.value)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %q (-want +got):\n%s", test.vendor, test.env, diff)
		}
	}
}

// The models below say what each vendor's programs add to a container, written from what they do
// and not from this package's table: a text for each way in which a container has devices, nothing
// for none. Names that begin with in. are what the container has in the right way.

func nvidiaModel(env []string) (adds []string) {
	values := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	devices, set := values["NVIDIA_VISIBLE_DEVICES"]
	if values["CUDA_VERSION"] != "" && values["NVIDIA_REQUIRE_CUDA"] == "" && !set {
		devices = "all"
	}
	elements := strings.Split(devices, ",")
	if devices == "" || devices == "none" || slices.Contains(elements, "void") {
		return nil
	}
	adds = append(adds, devices)
	for _, gate := range []string{"GDS", "MOFED", "GDRCOPY", "NVSWITCH"} {
		if values["NVIDIA_"+gate] == "enabled" {
			adds = append(adds, gate)
		}
	}
	if channels := values["NVIDIA_IMEX_CHANNELS"]; channels != "" && channels != "void" {
		adds = append(adds, "channel")
	}
	for _, name := range []string{"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"} {
		if values[name] != "" {
			adds = append(adds, name)
		}
	}
	for _, entry := range env {
		if strings.HasPrefix(entry, "NVIDIA_GPU_MEMORY_") {
			adds = append(adds, entry)
		}
	}
	return adds
}

// amdModel has what is reserved for the container, too.
func amdModel(env []string) (adds []string) {
	last := ""
	for _, entry := range env {
		name, value, found := strings.Cut(entry, "=")
		if found && (name == "AMD_VISIBLE_DEVICES" || strings.HasPrefix(name, "DOCKER_RESOURCE_")) {
			if last = value; value == "all" || strings.ContainsAny(value, "0123456789") {
				adds = append(adds, value)
			}
		}
	}
	if last != "all" && !strings.ContainsAny(last, "0123456789") {
		for i := range adds {
			adds[i] += ", which it does not get"
		}
	}
	return adds
}

func habanaModel(env []string) (adds []string) {
	i := slices.IndexFunc(env, func(entry string) bool { return strings.HasPrefix(entry, "HABANA_VISIBLE_DEVICES") })
	if i < 0 {
		return []string{"all"} // where the runtime is configured to add devices always
	}
	_, value, found := strings.Cut(env[i], "=")
	if !found || value == "all" || strings.ContainsAny(value, "0123456789") {
		adds = append(adds, value)
	}
	exact, set := "", false
	for _, entry := range env {
		if value, is := strings.CutPrefix(entry, "HABANA_VISIBLE_DEVICES="); is {
			exact, set = value, true
		}
	}
	if !set || exact != "none" {
		adds = append(adds, exact)
	}
	return adds
}

func ascendModel(env []string) (adds []string) {
	devices, old := "", ""
	for _, entry := range env {
		if value, is := strings.CutPrefix(entry, "ASCEND_VISIBLE_DEVICES="); is {
			if devices = value; old == "" && strings.Contains(value, "Ascend") {
				old = value
			}
		}
		if strings.HasPrefix(entry, "MOUNT_BY_RUNTIME_FOR_DP=") {
			adds = append(adds, "sockets")
		}
		name, value, _ := strings.Cut(entry, "=")
		if name == "host_snapshot_path" || name == "GRUS_SNAPSHOT_IMAGE_PATH" {
			adds = append(adds, "snapshot")
		}
		if name == "ASCEND_RUNTIME_MOUNTS" {
			const lists = "/etc/ascend-docker-runtime.d"
			for element := range strings.SplitSeq(value, ",") {
				if file := path.Join(lists, strings.TrimSpace(element)+".list"); path.Dir(file) != lists {
					adds = append(adds, file)
				}
			}
		}
	}
	for _, value := range []string{devices, old} {
		if value != "" && value != "void" {
			adds = append(adds, value)
		}
	}
	return adds
}

// anyModel is a program of which it is not known what it takes.
func anyModel(env []string) (adds []string) {
	for _, entry := range env {
		if value, is := strings.CutPrefix(entry, "WIDGETS="); is && value != "void" {
			adds = append(adds, value)
		}
	}
	return adds
}

// readings are the models, each with what is given in the right way, and with variables and values
// of random environments.
var readings = []struct {
	resource types.ResourceName
	model    func(env []string) []string
	given    string
	names    []string
	values   []string
}{
	{"nvidia.com/gpu", nvidiaModel, "NVIDIA_VISIBLE_DEVICES=GPU-7", []string{
		"NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES ", "NVIDIA_GDS", "NVIDIA_IMEX_CHANNELS", "CUDA_VERSION",
		"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_REQUIRE_CUDA",
	}, []string{"all", "0,1", "void", "none", "", "enabled"}},
	{"amd.com/gpu", amdModel, "AMD_VISIBLE_DEVICES=7", []string{
		"AMD_VISIBLE_DEVICES", "DOCKER_RESOURCE_", "DOCKER_RESOURCE_A", "DOCKER_RESOURCE_B ",
	}, []string{"all", "0,1", "none", "void", ""}},
	{"habana.ai/gaudi", habanaModel, "HABANA_VISIBLE_DEVICES=7", []string{
		"HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES_", "HABANA_VISIBLE_DEVICES ", "HABANA_VISIBLE",
	}, []string{"all", "0,1", "none", "void", ""}},
	{"huawei.com/Ascend910", ascendModel, "ASCEND_VISIBLE_DEVICES=7", []string{
		"ASCEND_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES ", "MOUNT_BY_RUNTIME_FOR_DP", "host_snapshot_path",
		"GRUS_SNAPSHOT_IMAGE_PATH", "ASCEND_RUNTIME_MOUNTS", "ASCEND_RUNTIME_MOUNTS",
	}, []string{"0", "Ascend910-0", "void", "", "base", "base, ../x", "..", "/tmp/x"}},
	{"example.com/widget", anyModel, "WIDGETS=7", []string{"WIDGETS"}, []string{"all", "void", ""}},
}

// guardOf returns the guard of a node that gives out the resource, and for which WIDGETS is
// declared.
func guardOf(t *testing.T, own types.ResourceName) *Guard {
	t.Helper()
	return node{
		own: []types.ResourceName{own}, vendors: []Vendor{{
			Name: "example.com", Variables: []Variable{{Name: "WIDGETS", Nothing: "void", Takes: TakesAny}},
		}},
	}.guard(t)
}

// A container that is not refused has nothing that its runtime obeys, other than what it was
// allocated: for every image and pod, in any order and number, and in every runtime that merges
// them.
func TestNoEnvironmentAddsADeviceThatWasNotAllocated(t *testing.T) {
	for _, test := range readings {
		t.Run(string(test.resource), func(t *testing.T) {
			guard := guardOf(t, test.resource)
			random := rand.New(rand.NewPCG(1, 2))
			some := func() []string { return environment(random, test.names, test.values) }
			passed := 0
			for range 4000 {
				image, pod := some(), replaceEntries(nil, some()) // the kubelet sets a name once
				var allocated []string
				if random.IntN(2) == 0 {
					allocated = append(allocated, test.given)
				}
				for _, byNRI := range []bool{false, true} {
					ok, problem := start(guard, test.model, image, pod, allocated, byNRI)
					if problem != "" {
						t.Fatalf("image %q, pod %q, given %q, by NRI: %t: %s", image, pod, allocated, byNRI, problem)
					}
					if ok {
						passed++
					}
				}
			}
			if passed < 400 {
				t.Errorf("%d of 8000 containers are not refused: the property has no meaning", passed)
			}
		})
	}
}

// environment returns up to four of the variables.
func environment(random *rand.Rand, names, values []string) (env []string) {
	for range random.IntN(5) {
		env = append(env, names[random.IntN(len(names))]+"="+values[random.IntN(len(values))])
	}
	return env
}

// A container that was created without kubecri, and that the vendor's runtime gives devices, is
// noticed: for every environment, an empty one included.
func TestNoEnvironmentThatWasLeftAsItIsAddsADeviceUnnoticed(t *testing.T) {
	for _, test := range readings {
		t.Run(string(test.resource), func(t *testing.T) {
			guard := guardOf(t, test.resource)
			random := rand.New(rand.NewPCG(3, 4))
			adding := 0
			for range 4000 {
				env := environment(random, test.names, test.values)
				adds := test.model(env)
				if len(adds) == 0 {
					continue
				}
				adding++
				if len(guard.Taken(containerOf(env, nil, true))) == 0 {
					t.Fatalf("%q adds %q, and is not noticed", env, adds)
				}
			}
			if adding < 400 {
				t.Errorf("%d of 4000 environments add devices: the property has no meaning", adding)
			}
		})
	}
}

// What stays as it is must not be ended.
func TestAContainerWithoutItsVendorsVariablesIsEndedOnlyWhereThatStandsForAllDevices(t *testing.T) {
	const missing = "the missing environment variable %s"
	for resource, test := range map[types.ResourceName]struct {
		env  []string
		want string
	}{
		"nvidia.com/gpu":       {[]string{"CUDA_VERSION=12.0", "NVIDIA_REQUIRE_CUDA=cuda>=12.0"}, ""},
		"nvidia.com/old":       {[]string{"CUDA_VERSION=9.0"}, fmt.Sprintf(missing, "NVIDIA_VISIBLE_DEVICES")},
		"amd.com/gpu":          {nil, ""},
		"huawei.com/Ascend910": {nil, ""},
		"habana.ai/x":          {[]string{"=a", "PATH=/bin"}, fmt.Sprintf(missing, "HABANA_VISIBLE_DEVICES")},
		"habana.ai/gaudi":      {nil, fmt.Sprintf(missing, "HABANA_VISIBLE_DEVICES")},
	} {
		taken := node{own: []types.ResourceName{resource}}.guard(t).Taken(containerOf(test.env, nil, true))
		got := ""
		for _, attempt := range taken {
			got += attempt.Text
		}
		if got != test.want {
			t.Errorf("%s, %q: %q, want %q", resource, test.env, got, test.want)
		}
	}
}

// Nothing gave it a device: kubecri let it pass as it was, and a restart must not end it.
func TestAContainerThatIsOlderThanTheDevicesIsNotEndedForVariablesThatItLacks(t *testing.T) {
	loaded, gaudi := time.Unix(1e9, 0), []types.ResourceName{"habana.ai/gaudi"}
	for name, test := range map[string]struct {
		own     []types.ResourceName
		files   []string
		created time.Time
		ended   bool
	}{
		"older than the driver":         {gaudi, []string{"/dev/hl0"}, loaded.Add(-loadTimeout - 1), false},
		"whose start loaded the driver": {gaudi, []string{"/dev/hl0"}, loaded.Add(-loadTimeout), true},
		"younger":                       {gaudi, []string{"/dev/hl0"}, loaded.Add(1), true},
		"of an age that is not known":   {gaudi, []string{"/dev/hl0"}, time.Time{}, true},
		"with devices by other files":   {gaudi, nil, loaded, true},
		"with devices of the kubelet's": {nil, []string{"/dev/hl0"}, loaded.Add(1), false},
	} {
		c := containerOf(nil, nil, true)
		c.Created = test.created
		guard := node{own: test.own, files: test.files, made: loaded}.guard(t)
		if ended := len(guard.Taken(c)) > 0; ended != test.ended {
			t.Errorf("a container %s: ended %t", name, ended)
		}
	}
}

// start returns whether the container starts, and what is wrong with that.
func start(
	guard *Guard, model func([]string) []string, image, pod, allocated []string, byNRI bool,
) (started bool, problem string) {
	c := containerOf(image, pod, byNRI)
	o := guard.Neutralise(c, envs(allocated...), len(allocated) > 0)
	if len(o.Refused) > 0 {
		return false, ""
	}
	added := slices.Concat(allocated, pairs(o.Set))
	results := [][]string{appended(image, pod, added), inPlace(image, pod, added)}
	if byNRI {
		results = [][]string{adjustedByNRI(slices.Concat(image, pod), added, pairs(o.Last))}
	}
	allowed := map[string]bool{}
	for _, entry := range allocated {
		_, value, _ := strings.Cut(entry, "=")
		allowed[value] = true
	}
	for _, env := range results {
		adds := model(env)
		for _, one := range adds {
			if !allowed[one] {
				return true, fmt.Sprintf("with %q, %q it adds %q", env, pairs(o.Last), one)
			}
		}
		if len(allocated) > 0 && len(adds) == 0 {
			return true, fmt.Sprintf("with %q it lacks what it was given", env)
		}
	}
	return true, ""
}

func containerOf(image, pod []string, byNRI bool) Container {
	c := Container{Adjusted: byNRI, Config: configOf(pod)}
	if byNRI {
		c.Config = configOf(slices.Concat(image, pod))
	} else {
		c.Image = envs(image...)
	}
	return c
}

// appended is how containerd makes an environment.
func appended(lists ...[]string) []string { return slices.Concat(lists...) }

// inPlace is how CRI-O makes one.
func inPlace(lists ...[]string) (env []string) {
	for _, entry := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(entry, "=")
		i := slices.IndexFunc(env, func(there string) bool { return strings.HasPrefix(there, name+"=") })
		if i < 0 {
			env = append(env, entry)
		} else {
			env[i] = entry
		}
	}
	return env
}

// adjustedByNRI is how NRI's generator changes one.
func adjustedByNRI(env, adjustment, last []string) (result []string) {
	put := func(entry string) { result = inPlace(result, []string{entry}) }
	pending := slices.Clone(adjustment)
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		i := slices.IndexFunc(pending, func(set string) bool { return strings.HasPrefix(set, name+"=") })
		if i >= 0 {
			entry = pending[i]
			pending = slices.Delete(pending, i, i+1)
		}
		put(entry)
	}
	for _, entry := range slices.Concat(pending, last) {
		put(entry)
	}
	return result
}
