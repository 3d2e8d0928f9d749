// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// timeLimit is how long opening, creating and preparing one plugin may take together.
const timeLimit = 15 * time.Second

// named is what plugins of both kinds have in common.
type named interface{ GetName() string }

// Kind is a kind of plugin: T is the interface that its plugins implement.
type Kind[T named] struct {
	what      string        // the kind in words
	symbol    string        // name of the entry point
	belongs   string        // where files of this kind are loaded from
	prepare   func(T) error // called once after creation
	timeLimit time.Duration // how long all of it may take

	allowWritable bool
}

// AllowWritable returns the kind such that files which users other than root may change are loaded
// too, if allow is true. See AllowWritableFlag.
func (k Kind[T]) AllowWritable(allow bool) Kind[T] {
	k.allowWritable = allow
	return k
}

// Schedulers is the kind that kube-scheduler loads from --devschedpath.
func Schedulers() Kind[devicescheduler.DeviceScheduler] {
	return Kind[devicescheduler.DeviceScheduler]{
		what:      "scheduler plugin",
		symbol:    devicescheduler.CreateSymbol,
		belongs:   "kube-scheduler's --devschedpath",
		prepare:   func(devicescheduler.DeviceScheduler) error { return nil },
		timeLimit: timeLimit,
	}
}

// Devices is the kind that kubecri loads from --cridevices. Loading one calls its New; Start is
// left to the caller.
func Devices() Kind[device.Device] {
	return Kind[device.Device]{
		what:      "device plugin",
		symbol:    device.CreateSymbol,
		belongs:   "kubecri's --cridevices",
		prepare:   device.Device.New,
		timeLimit: timeLimit,
	}
}

// target is a Kind without its type parameter, for reading and trying a file.
type target struct {
	what, symbol, belongs string
	timeLimit             time.Duration
}

func (k Kind[T]) target() target {
	return target{what: k.what, symbol: k.symbol, belongs: k.belongs, timeLimit: k.timeLimit}
}

// targets lists all kinds.
func targets() []target {
	return []target{Schedulers().target(), Devices().target()}
}
