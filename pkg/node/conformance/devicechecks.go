// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Names of checks that others need.
const (
	inventoryCheck    = "inventory"
	stableCheck       = "inventory-stable"
	allocateEachCheck = "allocate-each"
	allocateSameCheck = "allocate-same"
)

// deviceChecks are the checks of a device plugin.
func deviceChecks() []check[*deviceHalf] {
	return []check[*deviceHalf]{
		{
			name:  "name",
			about: "GetName returns one line of text, the same each time.",
			fix:   "return a constant such as \"widget\"",
			run:   func(d *deviceHalf) error { return checkName(d.plugin.GetName) },
		},
		{
			name:  "abilities",
			about: "Methods that are called like those of the SDK's optional interfaces have their types.",
			fix:   "give the method the type that the SDK says: the hosts do not see it",
			run: func(d *deviceHalf) error {
				return checkAbilities(d.plugin, reflect.TypeFor[device.ConcurrentSafe](),
					reflect.TypeFor[device.Allocator](),
					reflect.TypeFor[device.Isolator](), reflect.TypeFor[device.Firewalled]())
			},
		},
		{
			name:  "firewall",
			about: "DenyEnvs and Firewall return what can be enforced, before Start.",
			fix:   "correct the name that it says",
			run:   (*deviceHalf).checkFirewall,
		},
		{
			name:  "starts",
			about: "Start returns without an error.",
			fix:   "run the test where the devices are, or with --no-devices",
			run:   (*deviceHalf).checkStart,
		},
		{
			name: inventoryCheck,
			about: "UpdateNodeInfo reports devices under names that parse and are unique, with quantities that " +
				"make sense.",
			fix:   "report what the documentation of types.ResourceName describes",
			needs: []string{"starts"},
			run:   (*deviceHalf).checkInventory,
		},
		{
			name:  stableCheck,
			about: "UpdateNodeInfo reports the same, call for call and whatever the node is called.",
			fix:   "make names and quantities depend on the devices alone",
			needs: []string{inventoryCheck},
			run:   (*deviceHalf).checkStable,
		},
		{
			name:  "inventory-adds",
			about: "UpdateNodeInfo adds to what is there, and leaves entries of others alone.",
			fix:   "write into the maps of nodeInfo, and only your own names",
			needs: []string{stableCheck},
			run:   (*deviceHalf).checkAdds,
		},
		{
			name:  "inventory-own",
			about: "UpdateNodeInfo keeps nothing that it was given, and shares nothing with later calls.",
			fix:   "copy what the plugin keeps: a map in nodeInfo must not be one of the plugin's",
			needs: []string{"inventory-adds"},
			run:   (*deviceHalf).checkInventoryOwn,
		},
		{
			name:  "health",
			about: "A broken device is no longer allocatable, stays in Capacity, and is back when it is mended.",
			fix:   "leave unhealthy devices out of Allocatable and of the count in KubeAlloc, and only there",
			needs: []string{stableCheck},
			run:   (*deviceHalf).checkHealth,
		},
		{
			name:  allocateEachCheck,
			about: "Each device by itself can be allocated, and gives the container something.",
			fix:   "return what the container needs for the device",
			needs: []string{stableCheck},
			run:   (*deviceHalf).checkEach,
		},
		{
			name:  "allocate-all",
			about: "A container with all devices gets the device nodes of each.",
			fix:   "answer for every device in AllocateFrom",
			needs: []string{allocateEachCheck},
			run:   (*deviceHalf).checkAll,
		},
		{
			name:  allocateSameCheck,
			about: "The same devices have the same answer, in the same order.",
			fix:   "sort what comes out of a map, and number nothing by calls",
			needs: []string{"allocate-all"},
			run:   (*deviceHalf).checkSame,
		},
		{
			name:  "allocate-exact",
			about: "Different devices have different answers.",
			fix:   "answer for the devices in AllocateFrom",
			needs: []string{allocateSameCheck},
			run:   (*deviceHalf).checkExact,
		},
		{
			name:  "allocate-none",
			about: "A container without devices, or with those of other plugins, gets nothing and no error.",
			fix:   "return nothing for what is not yours: AllocateFrom lists devices of other plugins too",
			needs: []string{allocateSameCheck},
			run:   (*deviceHalf).checkNone,
		},
		{
			name:  "allocate-unknown",
			about: "A device that the node does not have is refused.",
			fix:   "return an error for a device of your kind that is not there",
			needs: []string{allocateSameCheck},
			run:   (*deviceHalf).checkUnknown,
		},
		{
			name:  "allocate-valid",
			about: "What containers get can be given: paths exist and are absolute, names are valid.",
			fix:   "see \"What is checked\" in docs/plugins.md",
			needs: []string{allocateEachCheck},
			run:   (*deviceHalf).checkValid,
		},
		{
			name:  "allocate-reads",
			about: "Allocate changes nothing of its arguments.",
			fix:   "work on copies: what is written there is discarded",
			needs: []string{allocateEachCheck, "allocate-none"},
			run:   (*deviceHalf).checkReads,
		},
		{
			name:  "allocate-own",
			about: "Allocate keeps nothing that it was given, and shares nothing with later calls.",
			fix:   "make the answer's maps and slices anew for each call",
			needs: []string{allocateSameCheck},
			run:   (*deviceHalf).checkAllocateOwn,
		},
		{
			name:  "hostile",
			about: "Odd, huge and malformed names are answered, and harm no later call.",
			fix:   "check a name with resource.ParsePath before you use parts of it",
			needs: []string{allocateSameCheck, "allocate-unknown", "allocate-none"},
			run:   (*deviceHalf).checkHostile,
		},
		{
			name:  "concurrent",
			about: "A plugin that says that it is safe for concurrent use is.",
			fix:   "guard what the methods share, or do not implement ConcurrentSafe",
			needs: []string{"inventory-own", "allocate-own"},
			run:   (*deviceHalf).checkConcurrent,
		},
		{
			name:    "restart",
			about:   "Another process reports the same devices and gives the same for them: grants outlive a restart.",
			fix:     "derive IDs from the hardware: serial numbers, PCI addresses",
			needs:   []string{allocateSameCheck},
			observe: (*deviceHalf).observe,
		},
	}
}

// checkName checks a plugin's name.
func checkName(get func() string) error {
	name := get()
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("it is empty")
	case !utf8.ValidString(name) || strings.ContainsAny(name, "\n\r\x00"):
		return fmt.Errorf("it is %q, which is no line of text", name)
	}
	if again := get(); again != name {
		return fmt.Errorf("it is %q, then %q", name, again)
	}
	return nil
}

// checkAbilities looks for methods that only a mistake can explain.
func checkAbilities(plugin any, interfaces ...reflect.Type) error {
	of := reflect.TypeOf(plugin)
	for _, ability := range interfaces {
		if of.Implements(ability) {
			continue
		}
		for i := range ability.NumMethod() {
			wanted := ability.Method(i)
			if has := reflect.ValueOf(plugin).MethodByName(wanted.Name); has.IsValid() && has.Type() != wanted.Type {
				return fmt.Errorf("it has a method %s of type %v, and %v has one of type %v",
					wanted.Name, has.Type(), ability, wanted.Type)
			}
		}
	}
	return nil
}

func (d *deviceHalf) checkFirewall() error {
	isolator, isolates := d.plugin.(device.Isolator)
	firewalled, says := d.plugin.(device.Firewalled)
	if !isolates && !says {
		return notApplicable("it implements neither Isolator nor Firewalled")
	}
	if isolates {
		if err := plugins.CheckFirewall(device.Firewall{Envs: isolator.DenyEnvs()}); err != nil {
			return fmt.Errorf("DenyEnvs: %w", err)
		}
	}
	if says {
		if err := plugins.CheckFirewall(firewalled.Firewall()); err != nil {
			return fmt.Errorf("Firewall: %w", err)
		}
	}
	return nil
}

func (d *deviceHalf) checkStart() error {
	err := d.start()
	if !d.options.NoDevices || !isRefusal(err) {
		return err
	}
	if err := d.start(); !isRefusal(err) && err != nil { // the host tries it again
		return fmt.Errorf("the second time: %w", err)
	}
	return notApplicable("%v, as may be on a machine without the devices", err)
}

func (d *deviceHalf) checkInventory() error {
	info := types.NewNodeInfoWithName(nodeName)
	if err := d.update(info); err != nil {
		return err
	}
	d.last = info.Clone()
	for what, list := range map[string]types.ResourceList{
		"Capacity": info.Capacity, "Allocatable": info.Allocatable, "KubeCap": info.KubeCap,
		"KubeAlloc": info.KubeAlloc,
	} {
		if list == nil {
			return withFix(fmt.Errorf("it leaves %s nil", what), "add to the map that is there")
		}
		if err := checkQuantities(what, list); err != nil {
			return err
		}
	}
	if err := plugins.CheckReport(info); err != nil {
		return err
	}
	for what, lists := range map[string][2]types.ResourceList{
		"Allocatable": {info.Allocatable, info.Capacity}, "KubeAlloc": {info.KubeAlloc, info.KubeCap},
	} {
		for _, name := range slices.Sorted(maps.Keys(lists[0])) {
			if all, known := lists[1][name]; !known || lists[0][name] > all {
				return fmt.Errorf("%s has %d of %s, of which there are %s in all", what, lists[0][name], name,
					quantity(lists[1], name))
			}
		}
	}
	if err := checkUnique(info.Capacity); err != nil {
		return err
	}
	if len(devices(info)) == 0 {
		if d.options.NoDevices {
			return notApplicable("it reports no device, as may be on a machine without them")
		}
		return withFix(errors.New("it reports no device that could be allocated"),
			"run the test where the devices are, or with --no-devices")
	}
	return nil
}

// checkQuantities checks the names and the quantities of a list.
func checkQuantities(what string, list types.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if list[name] < 0 {
			return withFix(fmt.Errorf("%s has %d of %s", what, list[name], name), "report no negative quantities")
		}
		if !resource.IsGroupResourceName(name) {
			continue
		}
		if _, err := resource.ParsePath(name); err != nil {
			return fmt.Errorf("%s has the name %s: %w", what, brief(string(name)), err)
		}
	}
	return nil
}

// checkUnique looks for devices that have one ID: the host tells devices apart by level and ID.
func checkUnique(list types.ResourceList) error {
	seen := map[[2]string]resource.Path{}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		path, err := resource.ParsePath(name)
		if err != nil || path.Depth() == 0 {
			continue
		}
		id := [2]string{path.DeviceLevel(), path.DeviceID()}
		if other, known := seen[id]; known && other.Device() != path.Device() {
			return withFix(fmt.Errorf("two devices have one ID: %s and %s", other.Device(), path.Device()),
				"give each device of a level an ID of its own, whatever group it is in")
		}
		seen[id] = path
	}
	return nil
}

// others are what another plugin has put into a NodeInfo.
func others(info *types.NodeInfo) {
	name := slices.Collect(maps.Keys(foreign.resources))[0]
	info.Capacity[name], info.Allocatable[name] = 1, 1
	info.KubeCap["another.example/device"], info.KubeAlloc["another.example/device"] = 1, 1
	info.Scorer[name] = 1
}

func (d *deviceHalf) checkAdds() error {
	alone, err := d.inventory()
	if err != nil {
		return err
	}
	both := types.NewNodeInfoWithName(nodeName)
	others(both)
	if err := d.update(both); err != nil {
		return err
	}
	others(alone)
	return sameInventory(alone, both)
}

func (d *deviceHalf) checkStable() error {
	first, err := d.inventory()
	if err != nil {
		return err
	}
	for _, name := range []string{nodeName, nodeName, "another-node", "", strings.Repeat("n", 253)} {
		again := types.NewNodeInfoWithName(name)
		if err := d.update(again); err != nil {
			return fmt.Errorf("for a node called %.20q: %w", name, err)
		}
		if err := sameInventory(first, again); err != nil {
			return err
		}
	}
	return nil
}

func (d *deviceHalf) checkInventoryOwn() error {
	first, err := d.inventory()
	if err != nil {
		return err
	}
	given := types.NewNodeInfoWithName(nodeName)
	if err := d.update(given); err != nil {
		return err
	}
	const mark types.ResourceName = "resource/group/another-vendors-device/mark/units"
	for _, list := range []types.ResourceList{given.Capacity, given.Allocatable, given.KubeCap, given.KubeAlloc} {
		clear(list)
		list[mark] = 1
	}
	again, err := d.inventory()
	if err != nil {
		return err
	}
	if err := sameInventory(first, again); err != nil {
		return fmt.Errorf("after the host changed the NodeInfo of the call before, %w", err)
	}
	if len(given.Capacity)+len(given.Allocatable) != 2 {
		return errors.New("a call changed the NodeInfo of the call before")
	}
	return nil
}

func (d *deviceHalf) checkEach() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	for _, one := range list {
		answer, err := d.allocateDevices(one)
		if err != nil {
			return fmt.Errorf("for %s, %w", one.path, err)
		}
		if isEmpty(answer) {
			return fmt.Errorf("a container with %s gets nothing", one.path)
		}
	}
	return nil
}

func (d *deviceHalf) checkSame() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	sets := [][]deviceOf{list}
	for _, one := range list {
		sets = append(sets, []deviceOf{one})
	}
	for _, set := range sets {
		first, err := d.allocateDevices(set...)
		if err != nil {
			return fmt.Errorf("for %d devices, %w", len(set), err)
		}
		for range 8 { // the order of a map's entries differs from one time to the next
			again, err := d.allocateDevices(set...)
			if err != nil {
				return fmt.Errorf("for %d devices, %w", len(set), err)
			}
			if !sameAnswer(first, again) {
				return fmt.Errorf("for %s it is %s, then %s", set[0].path, sayAnswer(first), sayAnswer(again))
			}
		}
	}
	return nil
}

func (d *deviceHalf) checkExact() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	if len(list) == 1 {
		return notApplicable("the node has one device")
	}
	var answers []device.Allocation
	for i, one := range list {
		answer, err := d.allocateDevices(one)
		if err != nil {
			return err
		}
		for j, other := range answers {
			if sameAnswer(answer, other) {
				return fmt.Errorf("%s and %s give a container the same: %s", list[j].path, list[i].path,
					sayAnswer(answer))
			}
		}
		answers = append(answers, answer)
	}
	return nil
}

func (d *deviceHalf) checkAll() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	all, err := d.allocateDevices(list...)
	if err != nil {
		return fmt.Errorf("for all %d devices, %w", len(list), err)
	}
	given := map[string]bool{}
	for _, node := range all.Devices {
		given[node.HostPath] = true
	}
	for _, one := range list {
		alone, err := d.allocateDevices(one)
		if err != nil {
			return err
		}
		for _, node := range alone.Devices {
			if !given[node.HostPath] {
				return fmt.Errorf("%s of %s is missing when a container has all %d devices", node.HostPath, one.path,
					len(list))
			}
		}
	}
	return nil
}

func (d *deviceHalf) checkNone() error {
	for what, set := range map[string][]deviceOf{
		"no devices": nil, "a device of another plugin": {foreign},
	} {
		answer, err := d.allocateDevices(set...)
		if err != nil {
			return fmt.Errorf("for a container with %s, %w", what, err)
		}
		if !isEmpty(answer) {
			return fmt.Errorf("a container with %s gets %s", what, sayAnswer(answer))
		}
	}
	list, err := d.available()
	if err != nil {
		return err
	}
	alone, err := d.allocateDevices(list[0])
	if err != nil {
		return err
	}
	beside, err := d.allocateDevices(list[0], foreign)
	if err != nil {
		return fmt.Errorf("for %s beside a device of another plugin, %w", list[0].path, err)
	}
	if !sameAnswer(alone, beside) {
		return fmt.Errorf("%s gives %s, and beside a device of another plugin %s", list[0].path, sayAnswer(alone),
			sayAnswer(beside))
	}
	return nil
}

// noSuchDevice is an ID that no device has.
const noSuchDevice = "no-such-device"

func (d *deviceHalf) checkUnknown() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	unknown := list[0].renamed(noSuchDevice)
	for what, set := range map[string][]deviceOf{
		"a device that the node does not have":                {unknown},
		"a device that the node does not have beside another": {list[0], unknown},
	} {
		answer, err := d.allocateDevices(set...)
		if err == nil && merged(answer) == nil {
			return fmt.Errorf("for %s (%s) it answers %s", what, unknown.path, sayAnswer(answer))
		}
		if err != nil && !isRefusal(err) {
			return fmt.Errorf("for %s (%s), %w", what, unknown.path, err)
		}
	}
	return nil
}

func (d *deviceHalf) checkValid() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	for _, one := range list {
		answer, err := d.allocateDevices(one)
		if err != nil {
			return err
		}
		if err := merged(answer); err != nil {
			return fmt.Errorf("kubecri refuses what %s gives: %w", one.path, err)
		}
	}
	return nil
}

func (d *deviceHalf) checkReads() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	pod, container := claim(list[0], foreign)
	podBefore, containerBefore := pod.Clone(), container.Clone()
	if _, err := d.allocate(pod, container); err != nil {
		return err
	}
	if !reflect.DeepEqual(podBefore, pod.Clone()) {
		return errors.New("it changes the pod")
	}
	if !reflect.DeepEqual(containerBefore, container.Clone()) {
		return errors.New("it changes the container")
	}
	return nil
}

func (d *deviceHalf) checkAllocateOwn() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	first, err := d.allocateDevices(list[0])
	if err != nil {
		return err
	}
	pod, container := claim(list[0])
	answer, err := d.allocate(pod, container)
	if err != nil {
		return err
	}
	// The host may do what it likes with either.
	clear(container.AllocateFrom)
	clear(container.DevRequests)
	clear(pod.RunningContainers)
	clear(answer.Envs)
	clear(answer.Annotations)
	clear(answer.Devices)
	clear(answer.Mounts)
	clear(answer.CDIDevices)
	if answer.Envs != nil {
		answer.Envs["MARK"] = "1"
	}
	again, err := d.allocateDevices(list[0])
	if err != nil {
		return fmt.Errorf("after the host changed the arguments and the answer of the call before, %w", err)
	}
	if !sameAnswer(first, again) {
		return fmt.Errorf("after the host changed the arguments and the answer of the call before, it is %s, not %s",
			sayAnswer(again), sayAnswer(first))
	}
	return nil
}

// oddNames are names that a careless plugin trips over: those that nobody parses, and those that
// resemble own.
func oddNames(own types.ResourceName) []types.ResourceName {
	text := string(own)
	segments := strings.Split(text, "/")
	names := []string{
		"", "/", "//", "resource", "resource/group", "resource/group/", "resource/group//", "resource/group/a/b",
		"resource/group/x", "x", "\x00", "\xff\xfe", "größe/ñ/東京", "%s%d%n", "../../etc/passwd", "a\nb",
		text + "/", "/" + text,
		text + "/more", text + "/more/units", strings.Repeat("a", 1<<16),
		"resource/group/" + strings.Repeat("l/i/", 5000) + "r",
		strings.ToUpper(text), strings.TrimPrefix(text, types.DeviceGroupPrefix+"/"),
	}
	for i := range segments {
		names = append(names, strings.Join(segments[:i], "/"))
		for _, odd := range []string{"", "..", "\x00", "%s", "-1", strings.Repeat("9", 400)} {
			changed := slices.Clone(segments)
			changed[i] = odd
			names = append(names, strings.Join(changed, "/"))
		}
	}
	all := make([]types.ResourceName, len(names))
	for i, name := range names {
		all[i] = types.ResourceName(name)
	}
	return all
}

// ownName returns the name of a resource of the device.
func (d deviceOf) ownName() types.ResourceName { return slices.Sorted(maps.Keys(d.resources))[0] }

func (d *deviceHalf) checkHostile() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	before, err := d.allocateDevices(list...)
	if err != nil {
		return err
	}
	try := func(what string, pod *types.PodInfo, container *types.ContainerInfo) error {
		if _, err := d.allocate(pod, container); err != nil && !isRefusal(err) {
			return fmt.Errorf("for %s, %w", what, err)
		}
		return nil
	}
	names := oddNames(list[0].ownName())
	everything := types.NewContainerInfo()
	for _, name := range names {
		container := types.NewContainerInfo()
		container.AllocateFrom[name], container.DevRequests[name] = name, 1
		everything.AllocateFrom[name], everything.DevRequests[name] = name, math.MaxInt64
		if err := try(fmt.Sprintf("a device called %.60q", name), podOf(container), container); err != nil {
			return err
		}
	}
	if err := try("all odd names at once", podOf(everything), everything); err != nil {
		return err
	}
	for i := range 10_000 {
		everything.AllocateFrom[types.ResourceName(fmt.Sprintf("r%d", i))] = list[0].renamed(fmt.Sprint(i)).ownName()
	}
	if err := try("10,000 devices", podOf(everything), everything); err != nil {
		return err
	}
	_, container := claim(list[0])
	for _, name := range names {
		pod := podOf(container)
		pod.Name, pod.NodeName = string(name), string(name)
		if err := try(fmt.Sprintf("a pod called %.60q", name), pod, container.Clone()); err != nil {
			return err
		}
	}
	if err := try("a pod without containers", types.NewPodInfo(), container.Clone()); err != nil {
		return err
	}
	after, err := d.allocateDevices(list...)
	if err != nil || !sameAnswer(before, after) {
		return fmt.Errorf("after that, a container with all devices gets %s, not %s (%v)", sayAnswer(after),
			sayAnswer(before), err)
	}
	return nil
}

// callers is how many goroutines call a plugin at a time: as many as the scheduler's.
const callers = 16

// concurrentCalls has many goroutines call one for so long. The error is that of one of them.
func concurrentCalls(long time.Duration, one func(caller, round int) error) error {
	// On one processor, goroutines would hardly ever meet.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(4, runtime.NumCPU())))
	end := time.Now().Add(long)
	errs := make([]error, callers)
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			for round := 0; errs[i] == nil && (round < 10 || time.Now().Before(end)); round++ {
				errs[i] = one(i, round)
			}
		})
	}
	running.Wait()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

func (d *deviceHalf) checkConcurrent() error {
	safe, ok := d.plugin.(device.ConcurrentSafe)
	if !ok || !safe.ConcurrentSafe() {
		return notApplicable("it does not say that it is safe for concurrent use: its calls wait for each other")
	}
	list, err := d.available()
	if err != nil {
		return err
	}
	whole := d.last
	answers := make([]device.Allocation, len(list))
	for i, one := range list {
		if answers[i], err = d.allocateDevices(one); err != nil {
			return err
		}
	}
	return concurrentCalls(d.options.Limits.Concurrent, func(caller, round int) error {
		if caller%2 == 0 {
			info := types.NewNodeInfoWithName(nodeName)
			if err := d.update(info); err != nil {
				return err
			}
			return sameInventory(whole, info)
		}
		i := (caller + round) % len(list)
		pod, container := claim(list[i])
		answer, err := d.allocate(pod, container)
		if err != nil {
			return err
		}
		if !sameAnswer(answers[i], inject.NewAddition("", answer).Allocation) {
			return fmt.Errorf("%s gives %s alone, and %s among calls at the same time", list[i].path,
				sayAnswer(answers[i]), sayAnswer(answer))
		}
		return nil
	})
}

// observe returns what must be the same in another process.
func (d *deviceHalf) observe() ([]string, error) {
	list, err := d.available()
	if err != nil {
		return nil, err
	}
	var lines []string
	for what, names := range map[string]types.ResourceList{"Capacity": d.last.Capacity, "KubeCap": d.last.KubeCap} {
		for name, quantity := range names {
			lines = append(lines, fmt.Sprintf("%s of %s is %d", what, name, quantity))
		}
	}
	for _, one := range list {
		answer, err := d.allocateDevices(one)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("for %s it gives %s", one.path, sayAnswer(answer)))
	}
	slices.Sort(lines)
	return lines, nil
}
