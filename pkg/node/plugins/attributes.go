// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxRemarks is how many attributes that are left out are named.
const maxRemarks = 4

// description is what a plugin reports of its devices' attributes.
type description struct {
	info       *types.NodeInfo              // for which it is, and
	reported   map[string]device.Attributes // a copy of what the plugin reported
	attributes map[string]device.Attributes // within their limits
	err        error                        // what is left out, and why
}

// queryAttributes updates what the plugin reports of the devices in info, if it does. After an
// error the last attributes stay. What is wrong is logged once.
func (p *plugin) queryAttributes(ctx context.Context, info *types.NodeInfo) {
	attributed, ok := p.device.(device.Attributed)
	if !ok {
		return
	}
	last := p.described
	now, err := callPlugin(ctx, p, "DeviceAttributes", p.timing.Update, func() (description, error) {
		list, err := attributed.DeviceAttributes()
		if err != nil {
			return description{}, err
		}
		if info == last.info && maps.EqualFunc(list, last.reported, maps.Equal) {
			return last, nil
		}
		reported := make(map[string]device.Attributes, len(list)) // the plugin may have kept the list
		for devicePath, attributes := range list {
			reported[devicePath] = maps.Clone(attributes)
		}
		attributes, err := CheckAttributes(info, reported)
		return description{info, reported, attributes, err}, nil
	})
	if err != nil {
		now = description{attributes: last.attributes, err: err}
	}
	if now.err != nil && !sameText(last.err, now.err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(now.err, "Some attributes of the plugin's devices are left out")
	}
	p.described = now
}

// recordDescription keeps the last description and reports whether it changes the state.
func (p *plugin) recordDescription() (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var remark error
	if p.described.err != nil {
		remark = fmt.Errorf("device plugin %q: DeviceAttributes: %w", p.name, p.described.err)
	}
	if !sameText(p.state.Remark, remark) {
		p.state.Remark, changed = remark, true
	}
	if !maps.EqualFunc(p.state.Attributes, p.described.attributes, maps.Equal) {
		p.state.Attributes, changed = p.described.attributes, true
	}
	return changed
}

// CheckAttributes returns a copy of what a plugin reports of the attributes of its devices, without
// the devices that are not in info, and without the attributes that are beyond the limits of
// device.Attributes. The error names the latter, the first few of them, and is otherwise nil.
func CheckAttributes(
	info *types.NodeInfo, reported map[string]device.Attributes,
) (kept map[string]device.Attributes, err error) {
	resources := map[string]int{} // how many each device has
	for name := range info.Capacity {
		resources[path.Dir(string(name))]++
	}
	var errs []error
	leftOut := 0
	refuse := func(devicePath string, err error) {
		if leftOut++; leftOut <= maxRemarks {
			errs = append(errs, fmt.Errorf("%s: %w", deviceinfo.DevicePath(devicePath), err))
		}
	}
	kept = map[string]device.Attributes{}
	for _, devicePath := range slices.Sorted(maps.Keys(reported)) {
		if resources[devicePath] == 0 {
			continue
		}
		attributes := device.Attributes{}
		for _, name := range slices.Sorted(maps.Keys(reported[devicePath])) {
			value := reported[devicePath][name]
			switch err := deviceinfo.CheckAttribute(name, value); {
			case err != nil:
				refuse(devicePath, err)
			case len(attributes)+resources[devicePath] >= deviceinfo.MaxAttributes:
				refuse(devicePath, fmt.Errorf("attribute %s: the device has more than %d attributes and resources",
					name,
					deviceinfo.MaxAttributes))
			default:
				attributes[name] = value
			}
		}
		if len(attributes) > 0 {
			kept[devicePath] = attributes
		}
	}
	if leftOut > maxRemarks {
		errs = append(errs, fmt.Errorf("and %d more", leftOut-maxRemarks))
	}
	return kept, errors.Join(errs...)
}

// describe adds the attributes of a member's devices. It is for names that i.owners gives to m.
func (i *Inventory) describe(m *member) {
	for name := range m.state.Info.Capacity {
		devicePath := path.Dir(string(name))
		if attributes, described := m.state.Attributes[devicePath]; described && i.owners[name] == m {
			i.Attributes[devicePath] = attributes
		}
	}
}
