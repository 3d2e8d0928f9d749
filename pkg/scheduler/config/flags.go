// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// shareEventsFlag is accepted and has no effect.
const shareEventsFlag = "device-share-events"

// Flags are the flags that set arguments in all profiles. They win over the file.
type Flags struct {
	set KubeDeviceArgs // what the command line sets
}

// AddTo adds the flags.
func (f *Flags) AddTo(flags *pflag.FlagSet) {
	text := func(s string) (string, error) { return s, nil }
	duration := func(s string) (metav1.Duration, error) {
		d, err := time.ParseDuration(s)
		return metav1.Duration{Duration: d}, err
	}
	port := func(s string) (int32, error) {
		n, err := strconv.ParseInt(s, 0, 32)
		return int32(n), err
	}
	topology := func(s string) (topology allocation.Topology, err error) { return topology, topology.Set(s) }
	quota := func(s string) (mode frameworkplugin.QuotaMode, err error) { return mode, mode.Set(s) }
	claimsMode := func(s string) (mode claims.Mode, err error) { return mode, mode.Set(s) }
	sealMode := func(s string) (mode seal.Mode, err error) { return mode, mode.Set(s) }

	a, d := &f.set, Defaults()
	add(flags, a, &a.PluginDirectory, &d.PluginDirectory, "string", text,
		"Directory of device scheduler plugins (*.so), "+
			"loaded in the order of their file names. A file that cannot be loaded is reported and left out.")
	add(flags, a, &a.AllowWritablePlugins, &d.AllowWritablePlugins, "bool", strconv.ParseBool,
		"Load plugin files that users other than root may write or replace.")
	add(flags, a, &a.VerdictCache, &d.VerdictCache, "bool", strconv.ParseBool,
		"Cache on which nodes the devices for a "+
			"pod fit. Without it every node is evaluated for every pod: use that only to find out whether the cache "+
			"is the cause of a problem, or what it is worth.")
	add(flags, a, &a.Topology, &d.Topology, "topology", topology,
		"Which devices a pod gets that counts devices and says nothing of topology: prefer, the best-connected "+
			"ones that are free on a node; require, ones that are connected as well as that many can be on any node, "+
			"for which the pod waits.")
	add(flags, a, &a.BestDevicesWait, &d.BestDevicesWait, "duration", duration,
		"How long a pod that requires topology waits "+
			"for devices that are best connected in all of the cluster, from the first attempt to schedule it. After "+
			"that, it prefers them. 0 is for ever: then one node that claims better devices than others, and never "+
			"has them free, keeps pods waiting.")
	add(flags, a, &a.Quota, &d.Quota, "mode", quota,
		"Which pods wait that request whole devices in their annotation "+
			"beyond the limits of the same container, which are what quotas count: enforce, those in a namespace with "+
			"a ResourceQuota that names the resource; everywhere, all; warn, none. The others get an event.")
	add(flags, a, &a.SealKey, &d.SealKey, "string", text,
		"File of private keys in PEM with which allocations are sealed, "+
			"the one that signs first; all of them are valid. It is read again when it changes. "+
			"kubecri seal-keys makes one.")
	add(flags, a, &a.SealMode, &d.SealMode, "mode", sealMode,
		"What a bound pod without a valid seal holds: what its "+
			"annotation says (off, and warn, which reports it in metrics and events), or only what its node reports "+
			"(enforce). The default with --"+flagOf("sealKey")+" is what the file of keys states, else enforce; "+
			"without, off.")
	add(flags, a, &a.EvictUnallocated, &d.EvictUnallocated, "bool", strconv.ParseBool,
		"Evict pods that request devices "+
			"and were bound without any before this scheduler led, if they have not started and a controller will "+
			"make them again. Disruption budgets hold.")
	add(flags, a, &a.SearchBudget, &d.SearchBudget, "duration", duration,
		"How long to search for devices for one pod on "+
			"one node. It is counted in steps of the search first, 80,000 for each millisecond, which takes half of "+
			"the time on a usual machine; then in time. A pod that is refused because of it says so in its event.")
	add(flags, a, &a.CycleBudget, &d.CycleBudget, "duration", duration,
		"How long to search for devices for one pod on "+
			"all nodes together, on top of what ordinary requests take; counted in the same way. Nodes that are left "+
			"over are searched when the pod is tried again.")
	add(flags, a, &a.SecurePort, &d.SecurePort, "int", port,
		"Port of the read API below "+schedulerapi.Prefix+": which "+
			"pod holds which device, and where one that waits would fit. Address, certificates, authentication and "+
			"authorization are those of --secure-port. 0 stands for no API.")
	add(flags, a, &a.Claims, &d.Claims, "mode", claimsMode,
		"Who chooses devices for ResourceClaims: upstream, its plugin "+
			"DynamicResources, which takes the first that fit; kubedevice (alpha), this scheduler, which prefers "+
			"close devices, keeps groups of close devices whole, and may evict pods for their claims.")
	add(flags, a, &a.ClaimLevels, &d.ClaimLevels, "attributes", claims.ParseLevels,
		"Attributes of devices in ResourceSlices, with their domains and with commas in between: devices with "+
			"the same value of one are close, and the first one counts as the closest. A driver's own attributes "+
			"group its devices alone.")
	flags.Bool(shareEventsFlag, true, "")
	// Fails only for a flag that is not there.
	_ = flags.MarkDeprecated(shareEventsFlag, "it has no effect: the event "+
		"DeviceShared is written once for each pod that is given a part of a device")
}

// Override sets the fields that the command line sets, and returns those that had another value.
func (f *Flags) Override(args *KubeDeviceArgs) []Overridden {
	var overridden []Overridden
	set := f.set.DeepCopy()
	for _, s := range settings {
		flagValue, field := s.pointer(set), s.pointer(args)
		if flagValue.IsNil() {
			continue
		}
		if !field.IsNil() && !reflect.DeepEqual(flagValue.Interface(), field.Interface()) {
			overridden = append(overridden, Overridden{
				Field: s.field, File: written(field.Elem()), Flag: "--" + s.flag + "=" + written(flagValue.Elem()),
			})
		}
		field.Set(flagValue)
	}
	return overridden
}

// Sets returns the flag that sets this field on the command line, with its value, or "".
func (f *Flags) Sets(field string) string {
	for _, s := range settings {
		if value := s.pointer(&f.set); s.field == field && !value.IsNil() {
			return "--" + s.flag + "=" + written(value.Elem())
		}
	}
	return ""
}

// Overridden is a field that the file and the command line set to different values.
type Overridden struct {
	Field string
	// File is the value in the file, Flag the flag with its value, which counts.
	File, Flag string
}

// flagOf returns the flag that sets a field.
func flagOf(field string) string {
	for _, s := range settings {
		if s.field == field {
			return s.flag
		}
	}
	panic("no field " + field)
}

// written returns a value as a flag has it.
func written(value reflect.Value) string {
	if duration, ok := value.Interface().(metav1.Duration); ok {
		return duration.Duration.String()
	}
	return fmt.Sprint(value.Interface())
}

// optional is the value of a flag that may be absent.
type optional[T any] struct {
	into        **T
	parse       func(string) (T, error)
	kind        string
	defaultText string
}

// String returns what the flag has been set to, else its default.
func (o *optional[T]) String() string {
	if o.into == nil || *o.into == nil {
		return o.defaultText
	}
	return written(reflect.ValueOf(**o.into))
}

// Set implements pflag.Value.
func (o *optional[T]) Set(text string) error {
	value, err := o.parse(text)
	if err == nil {
		*o.into = &value
	}
	return err
}

// Type implements pflag.Value.
func (o *optional[T]) Type() string { return o.kind }

// add adds the flag of the field that into points to, a field of set.
func add[T any](
	flags *pflag.FlagSet, set *KubeDeviceArgs, into, defaultValue **T, kind string, parse func(string) (T, error),
	usage string,
) {
	value := &optional[T]{into: into, parse: parse, kind: kind}
	if *defaultValue != nil {
		value.defaultText = written(reflect.ValueOf(**defaultValue))
	}
	at := slices.IndexFunc(settings, func(s setting) bool { return s.pointer(set).Addr().Interface() == any(into) })
	flag := flags.VarPF(value, settings[at].flag, "", usage)
	if kind == "bool" {
		flag.NoOptDefVal = "true"
	}
}
