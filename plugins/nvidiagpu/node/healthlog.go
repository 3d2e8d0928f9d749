// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

// gpuXID is an XID of one GPU.
type gpuXID struct {
	uuid   string
	number uint64
}

// logXID logs the first XID of each number and GPU: a program that is wrong may cause thousands.
func (h *health) logXID(uuid string, number uint64, counts bool) {
	key := gpuXID{uuid, number}
	if h.xids[key] {
		return
	}
	h.xids[key] = true
	if counts {
		utils.Warningf("NVIDIA GPU %s has reported XID %d, which makes it unhealthy", uuid, number)
		return
	}
	utils.Logf(0, "NVIDIA GPU %s has reported XID %d, which is ignored", uuid, number)
}

// logHealth logs that a GPU or an instance has become unhealthy, and why, or healthy again.
func logHealth(kind, uuid string, was, is device.Health) {
	switch {
	case is.Healthy == was.Healthy && is.Reason == was.Reason:
	case !is.Healthy:
		utils.Warningf("NVIDIA %s %s is unhealthy: %s: %s", kind, uuid, is.Reason, is.Message)
	case was.Reason != "" && !was.Healthy:
		utils.Logf(0, "NVIDIA %s %s is healthy again, %s", kind, uuid, is.Message)
	}
}
