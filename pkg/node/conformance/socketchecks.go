// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// answersCheck is what all other checks of a socket need.
const answersCheck = "answers"

// socketChecks are the checks of a kubelet device plugin.
func socketChecks() []check[*socketPlugin] {
	return []check[*socketPlugin]{
		{
			name:  answersCheck,
			about: "The plugin answers GetDevicePluginOptions.",
			fix:   "start the plugin, and give the path of its own socket, not the kubelet's",
			run: func(p *socketPlugin) error {
				_, err := p.pluginOptions()
				return err
			},
		},
		{
			name:  inventoryCheck,
			about: "ListAndWatch sends the list of devices at once, with unique IDs and Healthy or Unhealthy.",
			fix:   "send the whole list when a stream begins",
			needs: []string{answersCheck},
			run:   (*socketPlugin).checkList,
		},
		{
			name:  stableCheck,
			about: "Each stream of ListAndWatch begins with the same list.",
			fix:   "send the whole list for each stream: the client may come back",
			needs: []string{answersCheck, inventoryCheck},
			run:   (*socketPlugin).checkStable,
		},
		{
			name:  "health",
			about: "A broken device is listed as Unhealthy on the open stream, and as Healthy when it is repaired.",
			fix:   "send the whole list whenever a device's health changes",
			needs: []string{answersCheck, stableCheck},
			run:   (*socketPlugin).checkHealth,
		},
		{
			name:  allocateEachCheck,
			about: "Each device by itself can be allocated, and gives the container something.",
			fix:   "return what the container needs for the device",
			needs: []string{answersCheck, stableCheck},
			run:   (*socketPlugin).checkEach,
		},
		{
			name:  "allocate-all",
			about: "A container with all devices is answered, and so are several containers in one call.",
			fix:   "give one answer for each container, with all its devices",
			needs: []string{answersCheck, allocateEachCheck},
			run:   (*socketPlugin).checkAll,
		},
		{
			name:  allocateSameCheck,
			about: "The same devices have the same answer, in the same order.",
			fix:   "sort what comes out of a map: a container that starts again must get what it had",
			needs: []string{answersCheck, "allocate-all"},
			run:   (*socketPlugin).checkSame,
		},
		{
			name:  "allocate-exact",
			about: "Different devices have different answers.",
			fix:   "answer for the IDs in the request",
			needs: []string{answersCheck, allocateSameCheck},
			run:   (*socketPlugin).checkExact,
		},
		{
			name:  "allocate-unknown",
			about: "A device that is not listed is refused.",
			fix:   "return an error for an ID that is not there",
			needs: []string{answersCheck, allocateSameCheck},
			run:   (*socketPlugin).checkUnknown,
		},
		{
			name:  "allocate-valid",
			about: "What containers get can be given: paths exist and are absolute, names are valid.",
			fix:   "see \"What is checked\" in " + documents.URL + "vendors/plugins.md",
			needs: []string{answersCheck, allocateEachCheck},
			run:   (*socketPlugin).checkValid,
		},
		{
			name:  "preferred",
			about: "GetPreferredAllocation returns as many devices as are wanted, of those that may be chosen.",
			fix:   "choose among AvailableDeviceIDs, with all of MustIncludeDeviceIDs",
			needs: []string{answersCheck, stableCheck},
			run:   (*socketPlugin).checkPreferred,
		},
		{
			name:  "prestart",
			about: "PreStartContainer succeeds for devices that were allocated, and again.",
			fix:   "prepare the devices, or do not require PreStartContainer",
			needs: []string{answersCheck, allocateEachCheck},
			run:   (*socketPlugin).checkPreStart,
		},
		{
			name:  "hostile",
			about: "Odd IDs, none and very many of them are answered, and harm no later call.",
			fix:   "look IDs up before you use them",
			needs: []string{answersCheck, "allocate-unknown"},
			run:   (*socketPlugin).checkHostile,
		},
		{
			name:  "concurrent",
			about: "Calls at the same time have the answers that they have alone.",
			fix:   "guard what the calls share: the API's calls come at any time",
			needs: []string{answersCheck, allocateSameCheck},
			run:   (*socketPlugin).checkConcurrent,
		},
		{
			name:  "restart",
			about: "After a restart the plugin lists the same devices and gives the same for them.",
			fix:   "derive IDs from the hardware: serial numbers, PCI addresses",
			needs: []string{answersCheck, allocateSameCheck},
			run:   (*socketPlugin).checkRestart,
		},
	}
}

func (p *socketPlugin) checkList() error {
	list, err := p.list()
	if err != nil {
		return err
	}
	if err := checkList(list); err != nil {
		return err
	}
	if len(healthyIDs(list)) == 0 {
		if p.options.NoDevices {
			return notApplicable("it lists no healthy device, as may be on a machine without them")
		}
		return withFix(errors.New("it lists no healthy device"),
			"run the test where the devices are, or with --no-devices")
	}
	return nil
}

func (p *socketPlugin) checkStable() error {
	first, err := p.list()
	if err != nil {
		return err
	}
	again, err := p.list()
	if err != nil {
		return fmt.Errorf("the second stream: %w", err)
	}
	return sameDevices(first, again)
}

// repair repairs the device that the check of health has broken.
func (p *socketPlugin) repair() error {
	p.unrepaired = p.options.repair()
	return p.unrepaired
}

func (p *socketPlugin) checkHealth() error {
	if p.options.Break == "" || p.options.Repair == "" {
		return notApplicable(healthUntested)
	}
	var whole []*pluginapi.Device
	var wrong error
	step := 0
	err := p.watch(2*p.options.Limits.Health, func(list []*pluginapi.Device) bool {
		switch {
		case step == 0:
			whole, wrong = list, p.options.Limits.shell(p.options.Break)
			step++
		case step == 1 && len(healthyIDs(list)) < len(healthyIDs(whole)):
			if len(list) != len(whole) {
				wrong = fmt.Errorf("while a device is broken, %d are listed, of %d", len(list), len(whole))
			}
			wrong = errors.Join(wrong, p.repair())
			step++
		case step == 2 && len(healthyIDs(list)) == len(healthyIDs(whole)):
			step++
		}
		return wrong != nil || step == 3
	})
	switch {
	case wrong != nil:
		return wrong
	case err != nil && step == 1:
		err = fmt.Errorf("after --break, no list has a device less (%w)", err)
		return errors.Join(err, p.repair())
	case err != nil && step == 2:
		return fmt.Errorf("after --mend, no list has the device back (%w)", err)
	}
	return err
}

func (p *socketPlugin) checkEach() error {
	ids, err := p.available()
	if err != nil {
		return err
	}
	for _, id := range ids {
		answer, err := p.one(id)
		if err != nil {
			return fmt.Errorf("for %s, %w", id, err)
		}
		if isEmpty(answer) {
			return fmt.Errorf("a container with %s gets nothing", id)
		}
	}
	return nil
}

func (p *socketPlugin) checkAll() error {
	ids, err := p.available()
	if err != nil {
		return err
	}
	if _, err := p.one(ids...); err != nil {
		return fmt.Errorf("for all %d devices, %w", len(ids), err)
	}
	var containers [][]string
	for _, id := range ids {
		containers = append(containers, []string{id})
	}
	together, err := p.allocate(containers...)
	if err != nil {
		return err
	}
	for i, id := range ids {
		alone, err := p.one(id)
		if err != nil {
			return err
		}
		if !sameAnswer(alone, together[i]) {
			return fmt.Errorf("%s gives %s alone, and %s in a call for %d containers", id, sayAnswer(alone),
				sayAnswer(together[i]), len(ids))
		}
	}
	return nil
}

func (p *socketPlugin) checkSame() error {
	ids, err := p.available()
	if err != nil {
		return err
	}
	first, err := p.one(ids...)
	if err != nil {
		return err
	}
	for range 8 { // the order of a map's entries differs from one time to the next
		again, err := p.one(ids...)
		if err != nil {
			return err
		}
		if !sameAnswer(first, again) {
			return fmt.Errorf("for all devices it is %s, then %s", sayAnswer(first), sayAnswer(again))
		}
	}
	return nil
}

func (p *socketPlugin) checkExact() error {
	ids, err := p.available()
	if err != nil {
		return err
	}
	if len(ids) == 1 {
		return notApplicable("the plugin lists one device")
	}
	var answers []device.Allocation
	for i, id := range ids {
		answer, err := p.one(id)
		if err != nil {
			return err
		}
		for j, other := range answers {
			if sameAnswer(answer, other) {
				return fmt.Errorf("%s and %s give a container the same: %s", ids[j], ids[i], sayAnswer(answer))
			}
		}
		answers = append(answers, answer)
	}
	return nil
}

func (p *socketPlugin) checkUnknown() error {
	answer, err := p.one(noSuchDevice)
	if err == nil && mergedAsKubelet(answer) == nil {
		return fmt.Errorf("for the ID %q it answers %s", noSuchDevice, sayAnswer(answer))
	}
	if err != nil && !isRefusal(err) {
		return err
	}
	return nil
}

func (p *socketPlugin) checkValid() error {
	ids, err := p.available()
	if err != nil {
		return err
	}
	for _, id := range ids {
		answer, err := p.one(id)
		if err != nil {
			return err
		}
		if err := mergedAsKubelet(answer); err != nil {
			return fmt.Errorf("kubecri refuses what %s gives: %w", id, err)
		}
	}
	return nil
}

func (p *socketPlugin) checkPreferred() error {
	options, err := p.pluginOptions()
	if err != nil {
		return err
	}
	if !options.GetGetPreferredAllocationAvailable() {
		return notApplicable("it does not offer GetPreferredAllocation")
	}
	ids, err := p.available()
	if err != nil {
		return err
	}
	for size := 1; size <= len(ids); size *= 2 {
		for _, must := range [][]string{nil, ids[len(ids)-1:]} {
			response, err := rpc(p, "GetPreferredAllocation", p.options.Limits.Update,
				func(ctx context.Context) (*pluginapi.PreferredAllocationResponse, error) {
					return p.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
						ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
							AvailableDeviceIDs: ids, MustIncludeDeviceIDs: must, AllocationSize: int32(size),
						}},
					})
				})
			if err != nil {
				return fmt.Errorf("for %d of %d devices, %w", size, len(ids), err)
			}
			if len(response.GetContainerResponses()) != 1 {
				return fmt.Errorf("it gives %d answers for one container", len(response.GetContainerResponses()))
			}
			if err := checkChosen(response.GetContainerResponses()[0].GetDeviceIDs(), ids, must, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkChosen checks a choice of devices.
func checkChosen(chosen, available, must []string, size int) error {
	distinct := slices.Compact(slices.Sorted(slices.Values(chosen)))
	if len(chosen) != size || len(distinct) != size {
		return fmt.Errorf("for %d of %d devices it chooses %q", size, len(available), chosen)
	}
	for _, id := range chosen {
		if !slices.Contains(available, id) {
			return fmt.Errorf("it chooses %s, which is not among those that may be chosen", id)
		}
	}
	for _, id := range must {
		if !slices.Contains(chosen, id) {
			return fmt.Errorf("it does not choose %s, which it must", id)
		}
	}
	return nil
}

func (p *socketPlugin) checkPreStart() error {
	options, err := p.pluginOptions()
	if err != nil {
		return err
	}
	if !options.GetPreStartRequired() {
		return notApplicable("it does not require PreStartContainer")
	}
	ids, err := p.available()
	if err != nil {
		return err
	}
	for range 2 { // as for a container that starts again
		if _, err := p.one(ids...); err != nil {
			return err
		}
		_, err := rpc(p, "PreStartContainer", p.options.Limits.Start,
			func(ctx context.Context) (*pluginapi.PreStartContainerResponse, error) {
				return p.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
			})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *socketPlugin) checkHostile() error {
	ids, err := p.available()
	if err != nil {
		return err
	}
	before, err := p.one(ids...)
	if err != nil {
		return err
	}
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprintf("%s-%d", noSuchDevice, i)
	}
	for what, containers := range map[string][][]string{
		"no containers": nil, "a container without devices": {nil}, "an empty ID": {{""}},
		"odd IDs": {{"..", "../../etc/passwd", "%s%n", "a\nb", "größe/ñ/東京",
			"\x00"}}, "a long ID": {{strings.Repeat("a", 1<<16)}},
		"one device twice": {{ids[0], ids[0]}}, "10,000 devices": {many},
	} {
		if _, err := p.allocate(containers...); err != nil && !isRefusal(err) {
			return fmt.Errorf("for %s, %w", what, err)
		}
	}
	after, err := p.one(ids...)
	if err != nil || !sameAnswer(before, after) {
		return fmt.Errorf("after that, a container with all devices gets %s, not %s (%v)", sayAnswer(after),
			sayAnswer(before), err)
	}
	return nil
}

func (p *socketPlugin) checkConcurrent() error {
	ids, err := p.available()
	if err != nil {
		return err
	}
	alone := map[string]device.Allocation{}
	for _, id := range ids {
		if alone[id], err = p.one(id); err != nil {
			return err
		}
	}
	return concurrentCalls(p.options.Limits.Concurrent, func(caller, round int) error {
		id := ids[(caller+round)%len(ids)]
		answer, err := p.one(id)
		if err == nil && !sameAnswer(alone[id], answer) {
			err = fmt.Errorf("%s gives %s alone, and %s among calls at the same time", id, sayAnswer(alone[id]),
				sayAnswer(answer))
		}
		return err
	})
}

func (p *socketPlugin) checkRestart() error {
	if p.options.Restart == "" {
		return notApplicable("it takes a command that restarts the plugin: --restart")
	}
	list, err := p.list()
	if err != nil {
		return err
	}
	ids := healthyIDs(list)
	before, err := p.one(ids...)
	if err != nil {
		return err
	}
	if err := p.options.Limits.shell(p.options.Restart); err != nil {
		return err
	}
	var again []*pluginapi.Device
	back, err := await(p.options.Limits.Start, func() (bool, error) {
		var err error
		again, err = p.list()
		return err == nil, nil
	})
	if err != nil || !back {
		return fmt.Errorf("%v after --restart it does not list its devices at %s", p.options.Limits.Start, p.path)
	}
	if err := sameDevices(list, again); err != nil {
		return err
	}
	after, err := p.one(ids...)
	if err == nil && !sameAnswer(before, after) {
		err = fmt.Errorf("for all devices it is %s, then %s", sayAnswer(before), sayAnswer(after))
	}
	return err
}
