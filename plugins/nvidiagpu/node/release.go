// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// DefaultReleaseFile is a file that has the plugin let go of the driver for as long as it is there,
// so that the driver can be unloaded and replaced. "kubecri driver" writes and removes it. It is in
// a directory that ends with the boot.
const DefaultReleaseFile = "/run/kubedevice/nvidiagpu-release"

// reasonReleased is the reason why a GPU is unhealthy while the plugin has let go of the driver.
const reasonReleased = "DriverReleased"

// releaseWanted reports whether the plugin must not use the driver.
func (d *Device) releaseWanted() bool {
	if d.paths.Release == "" {
		return false
	}
	_, err := os.Lstat(d.paths.Release)
	return err == nil
}

// followRelease lets go of the driver, or takes it up again. d.mu is held.
func (d *Device) followRelease() {
	switch wanted := d.releaseWanted(); {
	case wanted && d.library != nil:
		d.letGo()
	case !wanted && d.released:
		d.takeUp()
	}
}

// letGo closes NVML, and with it the files of the driver.
func (d *Device) letGo() {
	d.health.release()
	if err := d.library.Close(); err != nil {
		utils.Errorf("NVIDIA's management library was closed, and says: %v", err)
	}
	d.library, d.released = nil, true
	for i := range d.known { // nothing of a closed library may be used
		d.known[i].device, d.known[i].described, d.known[i].sampled = nvml.Device{}, false, 0
	}
	utils.Logf(0, "Let go of NVIDIA's driver, as %s is there: the GPUs are unhealthy until it is removed",
		d.paths.Release)
}

// takeUp opens NVML again. While that fails, the GPUs stay as they are.
func (d *Device) takeUp() {
	library, err := nvml.Open(d.paths.NVML)
	if err != nil {
		d.report([]error{fmt.Errorf("the driver cannot be taken up again yet: %w", err)})
		return
	}
	d.library, d.released = library, false
	d.health.takeUp(library)
	utils.Logf(0, "Took up NVIDIA's driver again")
}

// release stops listening, and makes all GPUs and instances unhealthy.
func (h *health) release() {
	if h.events != nil {
		_ = h.events.Close() // it is of no use any more
	}
	h.events, h.library = nil, nil
	for uuid, s := range h.gpus {
		was := s.health
		s.become(device.Health{
			Reason:  reasonReleased,
			Message: `kubecri has let go of the driver, so that it can be replaced: "kubecri driver take" ends that`,
		}, h.now())
		kind := "GPU"
		if s.gpu != "" {
			kind = "MIG instance"
		}
		logHealth(kind, uuid, was, s.health)
	}
}

// takeUp listens again, and has all GPUs asked again for all that they say of themselves.
func (h *health) takeUp(library *nvml.Library) {
	for _, s := range h.gpus {
		if s.gpu == "" {
			*s = state{health: s.health}
		}
	}
	h.start(library)
}
