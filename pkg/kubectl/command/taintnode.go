// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// taintTries is how often a node's taints are read and written, while others write the node.
const taintTries = 10

// taintNode changes the taints of devices of one node, and returns what to say of each.
func (e *environment) taintNode(
	ctx context.Context, name string, wanted []string, change taintChange,
) (outcomes []string, err error) {
	client, _, err := e.client()
	if err != nil {
		return nil, err
	}
	for range taintTries {
		node, err := client.Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		value, outcomes, err := e.taintsOf(node, wanted, change)
		if err != nil {
			return nil, err
		}
		if value == node.Annotations[deviceinfo.DeviceTaintsAnnotation] {
			return outcomes, nil
		}
		annotation := any(value)
		if value == "" {
			annotation = nil
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": node.ResourceVersion,
			"annotations":     map[string]any{deviceinfo.DeviceTaintsAnnotation: annotation},
		}})
		if err != nil {
			return nil, err
		}
		_, err = client.Nodes().Patch(ctx, name, apitypes.MergePatchType, body,
			metav1.PatchOptions{FieldManager: "kubectl-device"})
		if err == nil || !apierrors.IsConflict(err) {
			return outcomes, err
		}
	}
	return nil, fmt.Errorf("node %q was written by others %d times while its devices were to be tainted: try again",
		name, taintTries)
}

// taintsOf returns the node's annotation after the change, and what to say of each device.
func (e *environment) taintsOf(
	node *corev1.Node, wanted []string, change taintChange,
) (value string, outcomes []string, err error) {
	taints, err := deviceinfo.DecodeDeviceTaints(node.Annotations[deviceinfo.DeviceTaintsAnnotation])
	if err != nil {
		return "", nil, fmt.Errorf("node %q: %w", node.Name, err)
	}
	known := devices.NewNode(node, nil, e.now())
	if len(known.Devices) == 0 && len(known.Problems) > 0 {
		return "", nil, fmt.Errorf("node %q: %s", node.Name, known.Problems[0])
	}
	var paths []string
	for _, name := range wanted {
		found, err := devicesNamed(known, taints, name)
		if err != nil {
			return "", nil, err
		}
		for _, path := range found {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	for _, path := range paths {
		after, changed, err := change.apply(taints, deviceinfo.TaintedDevice(path), e.now())
		if err != nil {
			return "", nil, fmt.Errorf("node %q: %w", node.Name, err)
		}
		outcome := change.already
		if changed {
			taints, outcome = after, change.done
		}
		outcomes = append(outcomes, node.Name+"/"+path+" "+outcome)
	}
	value, err = deviceinfo.EncodeDeviceTaints(taints)
	if err != nil {
		return "", nil, fmt.Errorf("node %q: %w", node.Name, err)
	}
	return value, outcomes, nil
}

// devicesNamed returns the paths of the devices of a node that a name stands for: one device, those
// of a group, or, for an empty name, all of the node. A device that has a taint and that its node
// does not list any more can be named, too.
func devicesNamed(node *devices.Node, taints []deviceinfo.DeviceTaint, name string) ([]string, error) {
	var all, ends []string
	within := map[string][]string{} // by group
	for _, d := range node.Devices {
		if d.Path == "" {
			continue // the node's own resources are no device
		}
		all = append(all, d.Path)
		if d.Path == name || strings.HasSuffix(d.Path, "/"+name) || deviceName(d.Kind, d.ID) == name {
			ends = append(ends, d.Path)
		}
		if group, ok := groupNamed(d.Path, name); ok {
			within[group] = append(within[group], d.Path)
		}
	}
	for _, t := range taints {
		listed := slices.ContainsFunc(all, func(path string) bool { return deviceinfo.TaintedDevice(path) == t.Device })
		if !listed && (t.Device == name || strings.HasSuffix(t.Device, "/"+name)) && !slices.Contains(ends, t.Device) {
			ends = append(ends, t.Device)
		}
	}
	switch {
	case name == "" && len(all) > 0:
		return all, nil
	case name == "":
		return nil, fmt.Errorf("node %q has no devices: kubectl device nodes lists those that have some", node.Name)
	case len(ends) == 1:
		return ends, nil
	case len(ends) > 1:
		return nil, fmt.Errorf("node %q has several devices %q, such as %s and %s: write more of the path",
			node.Name, name, ends[0], ends[1])
	case len(within) == 1:
		for _, device := range within {
			return device, nil
		}
	case len(within) > 1:
		return nil, fmt.Errorf("node %q has %d groups %q: write more of the path", node.Name, len(within), name)
	}
	return nil, fmt.Errorf("node %q has no device %q: kubectl device nodes %s lists them", node.Name, name, node.Name)
}

// groupNamed returns the path of the group with this name, or with a path that ends with it, which
// a device is in.
func groupNamed(device, name string) (group string, ok bool) {
	segments := strings.Split(device, "/")
	for end := len(segments) - 2; end > 0; end -= 2 {
		group := strings.Join(segments[:end], "/")
		if group == name || strings.HasSuffix(group, "/"+name) {
			return group, true
		}
	}
	return "", false
}
