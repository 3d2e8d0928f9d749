// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

const deviceNames = `A device is NODE/DEVICE, where DEVICE is its path as kubectl device nodes shows it, or as much
of the path's end as only one device of the node has. NODE/GROUP stands for all devices of a group,
and NODE for all of the node.`

func cordonCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "cordon NODE/DEVICE...",
		Short: "Mark devices as unschedulable",
		Long: `Mark devices as unschedulable: no new pod gets them, and pods that hold them keep them.

A cordoned device has the taint ` + deviceinfo.CordonKey + `:NoSchedule, in an annotation of its node.
So it stays cordoned when anything restarts. ` + deviceNames,
		Example: `  # No new pod gets this GPU
  kubectl device cordon gpu-7/GPU-7f3a

  # Nor any GPU of this group
  kubectl device cordon gpu-7/gpugrp1/0/gpugrp0/1`,
		Args:              atLeastOne("NODE/DEVICE"),
		ValidArgsFunction: completeDevices(env),
		RunE: func(command *cobra.Command, args []string) error {
			change := taintChange{add: []deviceinfo.DeviceTaint{{
				Key: deviceinfo.CordonKey, Effect: corev1.TaintEffectNoSchedule,
			}}, done: "cordoned", already: "already cordoned"}
			return env.taint(command, args, change)
		},
	}
}

func uncordonCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "uncordon NODE/DEVICE...",
		Short: "Mark devices as schedulable",
		Long: `Mark devices as schedulable again, after kubectl device cordon. Other taints stay.

` + deviceNames,
		Example: `  # Pods may get this GPU again
  kubectl device uncordon gpu-7/GPU-7f3a`,
		Args:              atLeastOne("NODE/DEVICE"),
		ValidArgsFunction: completeDevices(env),
		RunE: func(command *cobra.Command, args []string) error {
			change := taintChange{remove: []deviceinfo.DeviceTaint{{
				Key: deviceinfo.CordonKey, Effect: corev1.TaintEffectNoSchedule,
			}}, done: "uncordoned", already: "already uncordoned"}
			return env.taint(command, args, change)
		},
	}
}

func taintCommand(env *environment) *cobra.Command {
	overwrite := false
	command := &cobra.Command{
		Use:   "taint NODE/DEVICE... KEY[=VALUE]:EFFECT|KEY[:EFFECT]-...",
		Short: "Update the taints of devices",
		Long: `Update the taints of devices. Only pods that tolerate all taints of a device get it: with
spec.tolerations, which match as they do the taints of nodes.

The effects are NoSchedule and NoExecute. NoExecute also evicts the pods that hold the device and do
not tolerate the taint. A minus at the end removes a taint. ` + deviceNames,
		Example: `  # Only pods that tolerate dedicated=training get this GPU
  kubectl device taint gpu-7/GPU-7f3a dedicated=training:NoSchedule

  # Evict the pods that hold it, too
  kubectl device taint gpu-7/GPU-7f3a maintenance:NoExecute

  # Remove that taint
  kubectl device taint gpu-7/GPU-7f3a maintenance-`,
		ValidArgsFunction: completeDevices(env),
		RunE: func(command *cobra.Command, args []string) error {
			split := slices.IndexFunc(args, isTaint)
			if split < 1 {
				return &usageError{errors.New("one or more NODE/DEVICE, and then one or more taints, are required"),
					command.CommandPath()}
			}
			change, err := parseTaints(args[split:])
			if err != nil {
				return &usageError{err, command.CommandPath()}
			}
			change.overwrite = overwrite
			return env.taint(command, args[:split], change)
		},
	}
	command.Flags().BoolVar(&overwrite, "overwrite", false,
		"If true, allow a taint to replace one of the same key and effect with another value.")
	return command
}

func atLeastOne(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return &usageError{fmt.Errorf("one or more %s are required", what), command.CommandPath()}
	}
}

// taintChange is what is to be done to the taints of each device. Devices and times are not set.
type taintChange struct {
	add, remove   []deviceinfo.DeviceTaint // to remove any effect, it is empty
	overwrite     bool
	done, already string // what is said of a device
}

// written is how a taint is written in the arguments.
var written = regexp.MustCompile(`^([^=:]+?)(?:=([^:]*?))?(?::([^:]*?))?(-?)$`)

// isTaint reports whether an argument is a taint, and not a device.
func isTaint(arg string) bool {
	if strings.HasSuffix(arg, "-") || strings.Contains(arg, "=") {
		return true
	}
	return withEffect.MatchString(arg) // an ID may have colons
}

// withEffect is what ends with an effect, as far as one can tell.
var withEffect = regexp.MustCompile(`:(No|Prefer)[A-Za-z]*$`)

// parseTaints reads the arguments that are taints.
func parseTaints(args []string) (taintChange, error) {
	change := taintChange{done: "modified", already: "unchanged"}
	for _, arg := range args {
		parts := written.FindStringSubmatch(arg)
		if parts == nil {
			return change, fmt.Errorf("%q is no taint: write KEY=VALUE:EFFECT, KEY:EFFECT, or KEY- to remove one", arg)
		}
		taint := deviceinfo.DeviceTaint{Key: parts[1], Value: parts[2], Effect: corev1.TaintEffect(parts[3])}
		remove := parts[4] == "-"
		if !remove || taint.Effect != "" {
			if err := deviceinfo.CheckTaintEffect("effect", taint.Effect); err != nil {
				return change, fmt.Errorf("%q: %w", arg, err)
			}
		}
		if remove {
			change.remove = append(change.remove, taint)
		} else {
			change.add = append(change.add, taint)
		}
	}
	switch {
	case len(change.remove) == 0:
		change.done, change.already = "tainted", "already tainted"
	case len(change.add) == 0:
		change.done, change.already = "untainted", "has no such taint"
	}
	return change, nil
}

// apply returns the taints of a node after the change of one device, and whether anything has
// changed.
func (c taintChange) apply(
	taints []deviceinfo.DeviceTaint, device string, now time.Time,
) (after []deviceinfo.DeviceTaint, changed bool, err error) {
	after = slices.Clone(taints)
	for _, remove := range c.remove {
		before := len(after)
		after = slices.DeleteFunc(after, func(t deviceinfo.DeviceTaint) bool {
			return t.Device == device && t.Key == remove.Key && (remove.Effect == "" || t.Effect == remove.Effect)
		})
		changed = changed || len(after) < before
	}
	for _, add := range c.add {
		add.Device, add.TimeAdded = device, now.UTC().Truncate(time.Second)
		i := slices.IndexFunc(after, func(t deviceinfo.DeviceTaint) bool {
			return t.Device == device && t.Key == add.Key && t.Effect == add.Effect
		})
		switch {
		case i < 0:
			after, changed = append(after, add), true
		case after[i].Value == add.Value:
		case !c.overwrite:
			return nil, false, fmt.Errorf("device %s has the taint %s:%s with the value %q already: --overwrite "+
				"replaces it", device, add.Key, add.Effect, after[i].Value)
		default:
			after[i], changed = add, true
		}
	}
	return after, changed, nil
}

// taint changes the taints of devices, node by node, and says so. After an error of one node, the
// others go on.
func (e *environment) taint(command *cobra.Command, targets []string, change taintChange) error {
	var names []string
	byNode := map[string][]string{} // devices by node, as they were written
	for _, target := range targets {
		node, device, slash := strings.Cut(target, "/")
		if slash && device == "" { // as of a variable that is not set
			return &usageError{fmt.Errorf("%q names no device: write one behind the slash, or leave out the slash "+
				"if all devices of the node are meant", target), command.CommandPath()}
		}
		if !slices.Contains(names, node) {
			names = append(names, node)
		}
		byNode[node] = append(byNode[node], device)
	}
	var failed []error
	for _, name := range names {
		outcomes, err := e.taintNode(command.Context(), name, byNode[name], change)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, outcome := range outcomes {
			if _, err := fmt.Fprintln(e.Out, outcome); err != nil {
				return err
			}
		}
	}
	return errors.Join(failed...)
}
