// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The limits of a container request two devices; the annotation then names them.
func ExampleScheduler_PodAllocate() {
	node := types.NewNodeInfoWithName("node-1")
	node.Allocatable["resource/group/numa/0/intel.com:qat/0000:3d:01.0/device"] = 1
	node.Allocatable["resource/group/numa/1/intel.com:qat/0000:b1:01.0/device"] = 1
	node.Allocatable["resource/group/numa/1/intel.com:qat/0000:b1:01.1/device"] = 1
	pod := types.NewPodInfo()
	pod.RunningContainers["main"] = types.ContainerInfo{KubeRequests: types.ResourceList{"intel.com/qat": 2}}

	if err := kubeletplugin.New().PodAllocate(node, pod); err != nil {
		fmt.Println("nodes", err)
		return
	}
	annotation, err := deviceinfo.EncodePod(pod)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(annotation)
	// Output:
	// {"runningcontainer":{"main":{"devrequests":{"resource/group/numa/1/intel.com:qat/0/device":1,"resource/group/numa/1/intel.com:qat/1/device":1},"allocatefrom":{"resource/group/numa/1/intel.com:qat/0/device":"resource/group/numa/1/intel.com:qat/0000:b1:01.0/device","resource/group/numa/1/intel.com:qat/1/device":"resource/group/numa/1/intel.com:qat/0000:b1:01.1/device"}}}}
}
