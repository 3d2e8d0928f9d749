// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// spareBytes is how much of the node's annotations is kept free for what is said of devices, where
// not all devices fit.
const spareBytes = deviceinfo.MaxUnhealthyBytes

// omission is a part of the inventory that is not published, so that the others are.
type omission struct {
	label string
	err   error
}

// fit returns as much of the inventory as can be published in so many bytes of the node's
// annotations, and the parts that cannot. Smaller parts come first: a source that reports very much
// is left out, and costs the others nothing. Of a part that is left out, the extended resources
// remain, with nothing of them to be allocated: pods may hold some.
//
// The error is that of an inventory without parts.
func fit(
	node *corev1.Node, inventory *plugins.Inventory, bytes int,
) (info *types.NodeInfo, left []omission, err error) {
	if err = fits(node, inventory.Node, bytes); err == nil {
		return inventory.Node, nil, nil
	}
	type part struct {
		plugins.Part
		size int
	}
	var parts []part
	for _, p := range inventory.Parts() {
		alone := onlyExtended(inventory.Node, nil)
		add(alone, inventory.Node, p.Names)
		value, err := deviceinfo.EncodeNode(alone)
		if err != nil {
			left = append(left, omission{p.Label, err})
			continue
		}
		parts = append(parts, part{p, len(value)})
	}
	if len(parts)+len(left) == 0 {
		return nil, nil, err
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.size, b.size) })
	first := func(count int) *types.NodeInfo {
		some := onlyExtended(inventory.Node, inventory.Node.KubeCap)
		for _, p := range parts[:count] {
			add(some, inventory.Node, p.Names)
		}
		return some
	}
	// The largest number of them that fit together.
	count := sort.Search(len(parts), func(i int) bool { return fits(node, first(i+1), bytes) != nil })
	for _, p := range parts[count:] {
		left = append(left, omission{p.Label, fmt.Errorf(
			"its %d resources have %d bytes, and together with the others all of the node's annotations would have "+
				"more than %d; let its plugin report fewer, or shorter names", len(p.Names), p.size, bytes)})
	}
	slices.SortFunc(left, func(a, b omission) int { return cmp.Compare(a.label, b.label) })
	return first(count), left, nil
}

// fits returns why the inventory cannot be published in so many bytes of the node's annotations.
func fits(node *corev1.Node, info *types.NodeInfo, bytes int) error {
	value, err := annotation(node, info)
	if err != nil {
		return err
	}
	if total := sizeWith(node, map[string]string{deviceinfo.Annotation: value}); total > bytes {
		return fmt.Errorf("%d bytes of %d", total, bytes)
	}
	return nil
}

// onlyExtended returns an inventory of the node that has the extended resources alone, none of them
// to be allocated.
func onlyExtended(node *types.NodeInfo, extended types.ResourceList) *types.NodeInfo {
	info := types.NewNodeInfoWithName(node.Name)
	for name, capacity := range extended {
		info.KubeCap[name], info.KubeAlloc[name] = capacity, 0
		info.Capacity[name], info.Allocatable[name] = capacity, 0
	}
	return info
}

// add adds to info what node has of these names.
func add(info, node *types.NodeInfo, names []types.ResourceName) {
	lists := [][2]types.ResourceList{
		{info.Capacity, node.Capacity}, {info.Allocatable, node.Allocatable}, {info.Used, node.Used},
		{info.KubeCap, node.KubeCap}, {info.KubeAlloc, node.KubeAlloc},
	}
	for _, name := range names {
		for _, list := range lists {
			if quantity, has := list[1][name]; has {
				list[0][name] = quantity
			}
		}
		if scorer, has := node.Scorer[name]; has {
			info.Scorer[name] = scorer
		}
	}
}

// omit keeps which parts are left out, and says so when another one is.
func (a *Advertiser) omit(ctx context.Context, left []omission) {
	a.mu.Lock()
	before := a.omitted
	a.omitted = left
	a.mu.Unlock()
	same := func(a, b omission) bool { return a.label == b.label }
	if slices.EqualFunc(before, left, same) {
		return
	}
	for _, o := range left {
		if slices.ContainsFunc(before, func(b omission) bool { return same(o, b) }) {
			continue
		}
		err := o.describe(a.nodeName)
		klog.FromContext(ctx).Error(err, "Some devices are not published; the others are", logkey.Node, a.nodeName)
		if a.options.Events != nil {
			a.options.Events.WarnOfInventory(err)
		}
	}
	if a.options.Metrics != nil {
		labels := []string{}
		for _, o := range left {
			labels = append(labels, o.label)
		}
		a.options.Metrics.ShowOmitted(labels)
	}
}

func (o omission) describe(node string) error {
	return fmt.Errorf("the devices of %s are left out of what node %q publishes: %w", o.label, node, o.err)
}

// errOmitted says which parts are left out, or is nil. The caller holds mu.
func (a *Advertiser) errOmitted() error {
	var errs []error
	for _, o := range a.omitted {
		errs = append(errs, o.describe(a.nodeName))
	}
	return errors.Join(errs...)
}
