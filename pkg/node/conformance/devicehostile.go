// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// oddNames are names that a careless plugin trips over: those that no plugin parses, and those that
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

func (d *devicePlugin) checkHostile() error {
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

func (d *devicePlugin) checkConcurrent() error {
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
