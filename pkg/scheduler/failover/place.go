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

// maxTries is how many devices are tried in the place of the failed one, before all of the
// container's devices are chosen anew.
const maxTries = 32

// place chooses devices for the container, by what the pod requests for it. It keeps those that are
// healthy, if one other device is enough. refused says that the node cannot use those that the
// container has.
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
			without := map[string]bool{}
			for _, other := range devices {
				without[other] = other != device && !own[other]
			}
			if chosen, err := e.allocate(ctx, vacancy, without, request, container); err == nil {
				return chosen, nil
			}
		}
	}
	return e.allocate(ctx, vacancy, nil, request, container)
}

// requestOf returns what the pod requests for the container.
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
		Pod: &info, Waited: true, // no other node has better ones for it
		Containers: slices.DeleteFunc(slices.Clone(all.Containers), func(c grouptree.Container) bool {
			return c.Name != container
		}),
	}, nil
}

// allocate chooses devices for the container among those that are left and not without.
func (e *Engine) allocate(
	ctx context.Context, vacancy *nodestate.Vacancy, without map[string]bool, request *request.Request,
	container string,
) (sdk.ContainerInfo, error) {
	node, err := vacancy.Node(ctx, without)
	if err != nil {
		return sdk.ContainerInfo{}, err
	}
	info, err := e.Schedulers.Allocate(ctx, node, request)
	if err != nil {
		return sdk.ContainerInfo{}, err
	}
	chosen := info.RunningContainers[container]
	if len(chosen.AllocateFrom) == 0 {
		return sdk.ContainerInfo{}, fmt.Errorf("container %q is allocated nothing", container)
	}
	return chosen, nil
}
