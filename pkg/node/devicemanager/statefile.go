// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// knownDevices is the content of the state file.
type knownDevices struct {
	Devices []types.ResourceName `json:"devices"` // the names of all devices
	// Counted are the resources that are taken over, see ownership.
	Counted []types.ResourceName `json:"counted,omitempty"`
}

// Load loads the state file: its devices are those of plugins that are gone. It is called before
// Run. After an error the manager works as without the file: the plugins report their devices
// again.
func (m *Manager) Load() error {
	var known map[types.ResourceName][]entry
	var counted []types.ResourceName
	err := m.state.Load(func(body []byte) (err error) {
		known, counted, err = decodeState(body)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remembered devices: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, devices := range known {
		r := m.resource(name)
		r.devices = devices
		m.lose(r, fmt.Errorf("the device plugin of %s has not registered since kubecri was started; "+
			"its devices are not allocatable until it does", name))
	}
	for _, name := range counted {
		r := m.resource(name)
		m.move(r, inherited)
	}
	m.options.Clock.AfterFunc(returnTimeout, m.stopWaiting)
	return nil
}

// stopWaiting records that the plugins had enough time to come back.
func (m *Manager) stopWaiting() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waited = true
	for _, r := range m.resources {
		if !r.reported {
			r.reported = true
			m.touch(r)
		}
	}
}

// decodeState returns the devices in a state file, by resource, and the resources that were taken
// over.
func decodeState(raw []byte) (map[types.ResourceName][]entry, []types.ResourceName, error) {
	var content knownDevices
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, nil, err
	}
	devices := map[types.ResourceName][]entry{}
	seen := map[[2]string]bool{}
	for _, name := range content.Devices {
		d, ok := kubeletdevice.Parse(name)
		if !ok || seen[[2]string{string(d.Resource), d.ID}] {
			return nil, nil, fmt.Errorf("%.80q is no device's name, or stands in it twice", name)
		}
		seen[[2]string{string(d.Resource), d.ID}] = true
		devices[d.Resource] = append(devices[d.Resource], entry{Device: d, name: name})
	}
	for _, list := range devices {
		sortByID(list)
	}
	return devices, content.Counted, nil
}

// keepSaved saves the devices whenever they change, until ctx is done, and then once more.
func (m *Manager) keepSaved(ctx context.Context) {
	save := func() (changed <-chan struct{}) {
		content, changed := m.content()
		if err := m.state.Save(content); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot save the devices of device plugins for a restart", logkey.File,
				m.state.Path)
		}
		return changed
	}
	defer save()
	for {
		select {
		case <-save():
		case <-ctx.Done():
			return
		}
	}
}

// content returns the content of the state file, and a channel that is closed when it may be
// another.
func (m *Manager) content() (knownDevices, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content := knownDevices{Devices: []types.ResourceName{}}
	for _, r := range m.resources {
		for _, d := range r.devices {
			content.Devices = append(content.Devices, d.name)
		}
		if r.ownership.isTaken() {
			content.Counted = append(content.Counted, r.name)
		}
	}
	slices.Sort(content.Devices)
	slices.Sort(content.Counted)
	return content, m.changed
}
