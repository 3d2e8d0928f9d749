// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
)

// honoured refuses a change that has CDI devices where the runtime would ignore them: the container would start without.
func (g *Gate) honoured(delta *runtimeapi.ContainerConfig) error {
	if len(delta.GetCDIDevices()) == 0 {
		return nil
	}
	err := g.CDI()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cdi.ErrUnknown):
		return later(err)
	default:
		return never(fmt.Errorf("CDI device %q: %w", delta.GetCDIDevices()[0].GetName(), err))
	}
}
