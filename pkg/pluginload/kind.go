// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// timeout is the timeout of opening, creating and preparing one plugin together.
const timeout = 15 * time.Second

// named is the common interface of plugins of both kinds.
type named interface{ GetName() string }

// Kind is a kind of plugin: T is the interface that its plugins implement.
type Kind[T named] struct {
	what    string        // the kind for people
	symbol  string        // name of the entry point
	belongs string        // the directory for files of this kind
	prepare func(T) error // called once after creation
	timeout time.Duration // of all steps together

	allowWritable bool
}

// AllowWritable returns the kind; if allow is true, it includes files that users other than root
// may change. See AllowWritableFlag.
func (k Kind[T]) AllowWritable(allow bool) Kind[T] {
	k.allowWritable = allow
	return k
}

// Schedulers is the kind that kube-scheduler loads from --devschedpath.
func Schedulers() Kind[devicescheduler.DeviceScheduler] {
	return Kind[devicescheduler.DeviceScheduler]{
		what:    "scheduler plugin",
		symbol:  devicescheduler.CreateSymbol,
		belongs: "kube-scheduler's --devschedpath",
		prepare: func(devicescheduler.DeviceScheduler) error { return nil },
		timeout: timeout,
	}
}

// Devices is the kind that kubecri loads from --cridevices. Loading one calls its New; the caller
// calls Start.
func Devices() Kind[device.Device] {
	return Kind[device.Device]{
		what:    "device plugin",
		symbol:  device.CreateSymbol,
		belongs: "kubecri's --cridevices",
		prepare: device.Device.New,
		timeout: timeout,
	}
}

// target is a Kind without its type parameter, for reading and trying a file.
type target struct {
	what, symbol, belongs string
	timeout               time.Duration
}

func (k Kind[T]) target() target {
	return target{what: k.what, symbol: k.symbol, belongs: k.belongs, timeout: k.timeout}
}

// targets lists all kinds.
func targets() []target {
	return []target{Schedulers().target(), Devices().target()}
}
