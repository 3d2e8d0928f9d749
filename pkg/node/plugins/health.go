// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"context"
	"maps"
	"path"
	"regexp"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// The reasons of unhealthy devices whose plugins give none.
const (
	// ReasonUnhealthy: the plugin reports that it is, and not why.
	ReasonUnhealthy = "Unhealthy"
	// ReasonPluginGone: no plugin serves the device. Nothing is known of the device itself.
	ReasonPluginGone = "PluginGone"
	// ReasonGone: a pod holds the device, and its plugin no longer lists it.
	ReasonGone = "Gone"
	// ReasonWithheld: the device may be another pod's by another plugin. Nothing is known of the
	// device itself.
	ReasonWithheld = "Withheld"
)

// maxMessage is how many bytes of a plugin's message are kept.
const maxMessage = 256

// reasonPattern is what a reason may be; it is a label of metrics and a reason of conditions.
var reasonPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

// IsReason reports whether a plugin's reason counts as it is: one CamelCase word of at most 64
// letters and digits.
func IsReason(text string) bool { return reasonPattern.MatchString(text) }

// Health is the health of a device of the node.
type Health struct {
	device.Health
	// Name is that of one of the device's resources.
	Name types.ResourceName
	// Flapping says that the device became unhealthy just now, or is about to recover: nothing is
	// to follow for pods that hold it. Only a Damper says so.
	Flapping bool
	// Relapsed is when the device fell back, if it was healthy too short to recover. Only a Damper
	// knows it, and a later one does not.
	Relapsed time.Time
}

// reservedReasons are those that only this program gives: a plugin that is there cannot know them.
var reservedReasons = []string{ReasonPluginGone, ReasonGone, ReasonWithheld}

// sanitize returns what counts of a plugin's report, by device.
func sanitize(list []device.Health) map[string]device.Health {
	var kept map[string]device.Health
	for _, h := range list {
		if !IsReason(h.Reason) || slices.Contains(reservedReasons, h.Reason) {
			h.Reason = ReasonUnhealthy
			if h.Healthy {
				h.Reason = ""
			}
		}
		h.Message = truncate.Bytes(h.Message, maxMessage)
		if kept == nil {
			kept = map[string]device.Health{}
		}
		kept[h.Device] = h
	}
	return kept
}

// queryHealth returns the health that the plugin reports, if it does. An error is logged once.
func (p *plugin) queryHealth(ctx context.Context) map[string]device.Health {
	reporter, ok := p.device.(device.HealthReporter)
	if !ok {
		return nil
	}
	list, err := callPlugin(ctx, p, "DeviceHealth", p.timing.Update, func() ([]device.Health, error) {
		list, err := reporter.DeviceHealth()
		return slices.Clone(list), err // the plugin may have kept it
	})
	if !sameText(err, p.healthErr) && err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Device plugin does not report the health of its devices")
	}
	p.healthErr = err
	return sanitize(list)
}

// withhold returns the report without what is allocatable of devices that are unhealthy. info is
// not changed.
func withhold(info *types.NodeInfo, health map[string]device.Health) *types.NodeInfo {
	kept := info
	for name, quantity := range info.Allocatable {
		if h, listed := health[path.Dir(string(name))]; listed && !h.Healthy && quantity > 0 {
			if kept == info {
				kept = info.Clone()
			}
			kept.Allocatable[name] = 0
		}
	}
	return kept
}

// diagnose finds the unhealthy devices of a member: those of which nothing is allocatable. It is
// for names that i.owners gives to m.
func (i *Inventory) diagnose(m *member) {
	healthy := map[string]bool{}
	names := map[string]types.ResourceName{}
	for name, capacity := range m.state.Info.Capacity {
		if capacity <= 0 || i.owners[name] != m || !resource.IsGroupResourceName(name) {
			continue
		}
		devicePath := path.Dir(string(name))
		names[devicePath] = max(name, names[devicePath])
		healthy[devicePath] = healthy[devicePath] || m.state.Info.Allocatable[name] > 0
	}
	for devicePath, name := range names {
		if healthy[devicePath] {
			if h, said := m.state.Health[devicePath]; said && h.Healthy {
				i.health[devicePath] = Health{Health: h, Name: name}
			}
			continue
		}
		h, said := m.state.Health[devicePath]
		if missing := i.Missing(name); missing != nil {
			h = device.Health{Reason: ReasonPluginGone, Message: missing.Error()}
		} else if !said || h.Healthy {
			h = device.Health{Reason: ReasonUnhealthy, Message: "its device plugin reports it as unhealthy"}
		}
		h.Device = devicePath
		i.health[devicePath] = Health{Health: h, Name: name}
	}
}

// Unhealthy returns the devices of which pods are given nothing, by device.
func (i *Inventory) Unhealthy() []Health {
	var list []Health
	for h := range maps.Values(i.health) {
		if !h.Healthy {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b Health) int { return cmp.Compare(a.Device, b.Device) })
	return list
}

// HealthOf returns the health of a device by the name of one of its resources, which a pod holds.
// While its source is missing, or the device is withheld, nothing is known of it.
func (i *Inventory) HealthOf(name types.ResourceName) (h Health, known bool) {
	devicePath := path.Dir(string(name))
	h, listed := i.health[devicePath]
	_, owned := i.owners[name]
	switch {
	case i.Missing(name) != nil, i.Withheld(name) != nil:
		return Health{}, false
	case listed:
		return h, true
	case owned:
		return Health{Health: device.Health{Device: devicePath, Healthy: true}, Name: name}, true
	case i.Complete || i.isLate(name):
		return Health{Health: device.Health{
			Device: devicePath, Reason: ReasonGone, Message: "its device plugin no longer lists it",
		}, Name: name, Flapping: i.flaps[devicePath].Flapping, Relapsed: i.flaps[devicePath].Relapsed}, true
	}
	return Health{}, false
}
