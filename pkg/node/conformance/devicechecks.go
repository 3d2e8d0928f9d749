// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
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
func deviceChecks() []check[*devicePlugin] {
	return []check[*devicePlugin]{
		{
			name:  "name",
			about: "GetName returns one line of text, the same each time.",
			fix:   "return a constant such as \"widget\"",
			run:   func(d *devicePlugin) error { return checkName(d.plugin.GetName) },
		},
		{
			name:  "abilities",
			about: "Methods that are called like those of the SDK's optional interfaces have their types.",
			fix:   "give the method the type that the SDK says: the hosts do not see it",
			run: func(d *devicePlugin) error {
				return checkAbilities(d.plugin, reflect.TypeFor[device.ConcurrentSafe](),
					reflect.TypeFor[device.Allocator](),
					reflect.TypeFor[device.Isolator](), reflect.TypeFor[device.Firewalled](),
					reflect.TypeFor[device.HealthReporter](), reflect.TypeFor[device.Reshaper](),
					reflect.TypeFor[device.Attributed](), reflect.TypeFor[device.UsageReporter]())
			},
		},
		{
			name:  "firewall",
			about: "DenyEnvs and Firewall return what can be enforced, before Start.",
			fix:   "correct the name that it says",
			run:   (*devicePlugin).checkFirewall,
		},
		{
			name:  "starts",
			about: "Start returns without an error.",
			fix:   "run the test where the devices are, or with --no-devices",
			run:   (*devicePlugin).checkStart,
		},
		{
			name: inventoryCheck,
			about: "UpdateNodeInfo reports devices under names that parse and are unique, with quantities that " +
				"make sense.",
			fix:   "report what the documentation of types.ResourceName describes",
			needs: []string{"starts"},
			run:   (*devicePlugin).checkInventory,
		},
		{
			name:  stableCheck,
			about: "UpdateNodeInfo reports the same, call for call and under every name of the node.",
			fix:   "make names and quantities depend on the devices alone",
			needs: []string{inventoryCheck},
			run:   (*devicePlugin).checkStable,
		},
		{
			name:  "inventory-adds",
			about: "UpdateNodeInfo adds to what is there, and leaves entries of others alone.",
			fix:   "write into the maps of nodeInfo, and only your own names",
			needs: []string{stableCheck},
			run:   (*devicePlugin).checkAdds,
		},
		{
			name:  "inventory-own",
			about: "UpdateNodeInfo keeps nothing that it was given, and shares nothing with later calls.",
			fix:   "copy what the plugin keeps: a map in nodeInfo must not be one of the plugin's",
			needs: []string{"inventory-adds"},
			run:   (*devicePlugin).checkInventoryOwn,
		},
		{
			name:  "health",
			about: "A broken device is no longer allocatable, stays in Capacity, and is back when it is repaired.",
			fix:   "leave unhealthy devices out of Allocatable and of the count in KubeAlloc, and only there",
			needs: []string{stableCheck},
			run:   (*devicePlugin).checkHealth,

			breaks: true,
		},
		{
			name: "reasons",
			about: "DeviceHealth answers in time, lists the plugin's own devices alone, and has a reason for each " +
				"unhealthy one.",
			fix:   "list devices of UpdateNodeInfo by what their names have in common, each with one CamelCase word",
			needs: []string{stableCheck},
			run:   (*devicePlugin).checkReasons,

			breaks: true,
		},
		{
			name:  allocateEachCheck,
			about: "Each device by itself can be allocated, and gives the container something.",
			fix:   "return what the container needs for the device",
			needs: []string{stableCheck},
			run:   (*devicePlugin).checkEach,
		},
		{
			name:  "allocate-all",
			about: "A container with all devices gets the device nodes of each.",
			fix:   "answer for every device in AllocateFrom",
			needs: []string{allocateEachCheck},
			run:   (*devicePlugin).checkAll,
		},
		{
			name:  allocateSameCheck,
			about: "The same devices have the same answer, in the same order.",
			fix:   "sort what comes out of a map, and number nothing by calls",
			needs: []string{"allocate-all"},
			run:   (*devicePlugin).checkSame,
		},
		{
			name:  "allocate-exact",
			about: "Different devices have different answers.",
			fix:   "answer for the devices in AllocateFrom",
			needs: []string{allocateSameCheck},
			run:   (*devicePlugin).checkExact,
		},
		{
			name:  "allocate-none",
			about: "A container without devices, or with those of other plugins, gets nothing and no error.",
			fix:   "return nothing for what is not yours: AllocateFrom lists devices of other plugins too",
			needs: []string{allocateSameCheck},
			run:   (*devicePlugin).checkNone,
		},
		{
			name:  "allocate-unknown",
			about: "A device that the node does not have is refused.",
			fix:   "return an error for a device of your kind that is not there",
			needs: []string{allocateSameCheck},
			run:   (*devicePlugin).checkUnknown,
		},
		{
			name:  "allocate-valid",
			about: "What containers get can be given: paths exist and are absolute, names are valid.",
			fix:   "see \"What is checked\" in " + documents.URL + "vendors/plugins.md",
			needs: []string{allocateEachCheck},
			run:   (*devicePlugin).checkValid,
		},
		{
			name:  "allocate-reads",
			about: "Allocate changes nothing of its arguments.",
			fix:   "work on copies: what is written there is discarded",
			needs: []string{allocateEachCheck, "allocate-none"},
			run:   (*devicePlugin).checkReads,
		},
		{
			name:  "allocate-own",
			about: "Allocate keeps none of its arguments, and shares nothing with later calls.",
			fix:   "make new maps and slices for each answer",
			needs: []string{allocateSameCheck},
			run:   (*devicePlugin).checkAllocateOwn,
		},
		{
			name:     "hostile",
			about:    "Odd, huge and malformed names are answered, and harm no later call.",
			fix:      "check a name with resource.ParsePath before you use parts of it",
			provokes: true,
			needs:    []string{allocateSameCheck, "allocate-unknown", "allocate-none"},
			run:      (*devicePlugin).checkHostile,
		},
		{
			name:     "concurrent",
			about:    "A plugin that says that it is safe for concurrent use is.",
			fix:      "guard what the methods share, or do not implement ConcurrentSafe",
			provokes: true,
			needs:    []string{"inventory-own", "allocate-own"},
			run:      (*devicePlugin).checkConcurrent,
		},
		{
			name:    "restart",
			about:   "Another process reports the same devices and gives the same for them: grants outlive a restart.",
			fix:     "derive IDs from the hardware: serial numbers, PCI addresses",
			needs:   []string{allocateSameCheck},
			observe: (*devicePlugin).observe,
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
	pluginType := reflect.TypeOf(plugin)
	for _, ability := range interfaces {
		if pluginType.Implements(ability) {
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

func (d *devicePlugin) checkFirewall() error {
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

func (d *devicePlugin) checkStart() error {
	err := d.start()
	if !d.options.NoDevices || !isRefusal(err) {
		return err
	}
	if err := d.start(); !isRefusal(err) && err != nil { // the host tries it again
		return fmt.Errorf("the second time: %w", err)
	}
	return notApplicable("%v, as may be on a machine without the devices", err)
}

// observe returns what must be the same in another process.
func (d *devicePlugin) observe() ([]string, error) {
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
