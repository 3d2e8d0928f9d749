// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func (d *devicePlugin) checkEach() error {
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

func (d *devicePlugin) checkSame() error {
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

func (d *devicePlugin) checkExact() error {
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

func (d *devicePlugin) checkAll() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	all, err := d.allocateDevices(list...)
	if err != nil {
		return fmt.Errorf("for all %d devices, %w", len(list), err)
	}
	allocated := map[string]bool{}
	for _, node := range all.Devices {
		allocated[node.HostPath] = true
	}
	for _, one := range list {
		alone, err := d.allocateDevices(one)
		if err != nil {
			return err
		}
		for _, node := range alone.Devices {
			if !allocated[node.HostPath] {
				return fmt.Errorf("%s of %s is missing when a container has all %d devices", node.HostPath, one.path,
					len(list))
			}
		}
	}
	return nil
}

func (d *devicePlugin) checkNone() error {
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
	both, err := d.allocateDevices(list[0], foreign)
	if err != nil {
		return fmt.Errorf("for %s together with a device of another plugin, %w", list[0].path, err)
	}
	if !sameAnswer(alone, both) {
		return fmt.Errorf("%s gives %s, and with a device of another plugin %s", list[0].path, sayAnswer(alone),
			sayAnswer(both))
	}
	return nil
}

// noSuchDevice is an ID that no device has.
const noSuchDevice = "no-such-device"

func (d *devicePlugin) checkUnknown() error {
	list, err := d.available()
	if err != nil {
		return err
	}
	unknown := list[0].renamed(noSuchDevice)
	for what, set := range map[string][]deviceOf{
		"a device that the node does not have":             {unknown},
		"a device that the node does not have and another": {list[0], unknown},
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

func (d *devicePlugin) checkValid() error {
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

func (d *devicePlugin) checkReads() error {
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

func (d *devicePlugin) checkAllocateOwn() error {
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
