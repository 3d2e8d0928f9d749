// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Transport is a way in which device plugins reach kubecri: plugin files are one, the kubelet's
// device-plugin API is another. Its methods are safe for concurrent use and return at once.
type Transport interface {
	// Sources returns the transport's plugins in the order in which they claim resources. loaded is
	// false while the transport still looks for its plugins after the start. changed is closed when
	// any of this, or the state of a source, is no longer so.
	Sources() (now []Source, loaded bool, changed <-chan struct{})
	// Late returns the label of the source that a device belongs to by its name, if sources of this
	// transport may come after the kubelet creates containers that need their devices, as after a
	// reboot. Such a container waits.
	Late(device types.ResourceName) (label string, late bool)
}

// Source is a device plugin. Its methods are safe for concurrent use.
type Source interface {
	// Label is its name in errors, conflicts and logs, unique within its transport.
	Label() string
	// State returns what it has.
	State() State
	// Firewall returns how containers could help themselves to its devices, for a container that
	// holds some of them or none. The caller does not change it.
	Firewall(holds bool) device.Firewall
	// Allocate returns what the container needs for those of its devices that are the source's. It
	// has a time limit of its own.
	Allocate(ctx context.Context, claim Claim) (inject.Addition, error)
}

// State is what a source has at one time.
type State struct {
	// Info is its last good report, nil before the first. It is never changed.
	Info *types.NodeInfo
	// Health is what it says of the health of devices in Info, by device; see device.Health. It is
	// never changed. Unhealthy devices that are not in it have no reason.
	Health map[string]device.Health
	// Attributes are those of devices in Info, by device as in device.Health, within their limits.
	// They are never changed.
	Attributes map[string]device.Attributes
	// Reported says that the source has reported since the start, or failed to.
	Reported bool
	// Serving says that the devices can be allocated. It matters for sources that come late.
	Serving bool
	// Err says what is wrong with the source, if anything. It names the source.
	Err error
	// Withheld are extended resources of the source that are another's for now, each with the
	// reason; usually none. None of the source's devices is allocatable then, and it is not unwell.
	// It is never changed.
	Withheld map[types.ResourceName]error
	// Remark says what is odd about the source and costs nothing, if anything. It names the source.
	Remark error
}

// ErrWithheld says why the source's devices are another's for now, or is nil.
func (s State) ErrWithheld() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Withheld)) {
		errs = append(errs, s.Withheld[name])
	}
	return errors.Join(errs...)
}

// Claim is a container and the devices that it is granted.
type Claim struct {
	// PodUID and ContainerName identify the container.
	PodUID, ContainerName string
	// Pod is the allocation of the pod, Container that of this container. Both are read only.
	Pod       *types.PodInfo
	Container *types.ContainerInfo
}
