// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxTries is how many devices place tries in place of the failed one, before it chooses all
// devices of the container again.
const maxTries = 32

// place chooses devices for the container according to the pod's request. It keeps the healthy ones
// if one other device suffices. refused says that the node cannot use the container's current
// devices.
func (e *Engine) place(
	ctx context.Context, vacancy *nodestate.Vacancy, pod *v1.Pod, container string, refused bool,
) (sdk.ContainerInfo, error) {
	request, err := e.requestOf(pod, container)
	if err != nil {
		return sdk.ContainerInfo{}, err
	}
	devices := vacancy.Devices()
	own := map[string]bool{}
	for _, from := range vacancy.Held.RunningContainers[container].AllocateFrom {
		if path, err := resource.ParsePath(from); err == nil && slices.Contains(devices, path.Device()) {
			own[path.Device()] = true
		}
	}
	if refused {
		return e.allocate(ctx, vacancy, own, request, container)
	}
	if len(own) > 0 && len(devices)-len(own) <= maxTries {
		for _, device := range devices {
			if own[device] {
				continue
			}
			excluded := map[string]bool{}
			for _, other := range devices {
				excluded[other] = other != device && !own[other]
			}
			if chosen, err := e.allocate(ctx, vacancy, excluded, request, container); err == nil {
				return chosen, nil
			}
		}
	}
	return e.allocate(ctx, vacancy, nil, request, container)
}

// requestOf returns the pod's request for the container.
func (e *Engine) requestOf(pod *v1.Pod, container string) (*request.Request, error) {
	all, err := e.Nodes.Requests.Read(pod)
	if err != nil {
		return nil, err
	}
	if all == nil {
		return nil, fmt.Errorf("pod %q requests no devices", klog.KObj(pod))
	}
	own, known := all.Pod.RunningContainers[container]
	if !known {
		return nil, fmt.Errorf("pod %q has no container %q that runs", klog.KObj(pod), container)
	}
	info := *all.Pod
	info.InitContainers, info.RunningContainers = nil, map[string]sdk.ContainerInfo{container: own}
	return &request.Request{
		Pod: &info, Waited: true, // no other node may have better devices
		Containers: slices.DeleteFunc(slices.Clone(all.Containers), func(c grouptree.Container) bool {
			return c.Name != container
		}),
	}, nil
}

// allocate chooses devices for the container among the free ones that are not excluded.
func (e *Engine) allocate(
	ctx context.Context, vacancy *nodestate.Vacancy, excluded map[string]bool, request *request.Request,
	container string,
) (sdk.ContainerInfo, error) {
	node, err := vacancy.Node(ctx, excluded)
	if err != nil {
		return sdk.ContainerInfo{}, err
	}
	info, err := e.Schedulers.Allocate(ctx, node, request)
	if err != nil {
		return sdk.ContainerInfo{}, err
	}
	chosen := info.RunningContainers[container]
	if len(chosen.AllocateFrom) == 0 {
		return sdk.ContainerInfo{}, fmt.Errorf("container %q gets no devices", container)
	}
	return chosen, nil
}
