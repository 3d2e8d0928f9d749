// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// healthInterval is the time between two comparisons of the devices' health with the pods that hold
// them: no channel reports which devices pods hold.
const healthInterval = 10 * time.Second

// registration is one registration of a placeholder with one life of the kubelet.
type registration struct {
	pluginapi.UnimplementedDevicePluginServer
	ctx       context.Context // the registration ends when it is done
	takeover  claim
	grants    Grants
	listening atomic.Bool
	connected chan struct{} // closed when the kubelet was sent the devices
	left      chan struct{} // closed when it listens no more
}

var _ pluginapi.DevicePluginServer = (*registration)(nil)

func newRegistration(ctx context.Context, takeover claim, held Grants) *registration {
	return &registration{
		ctx: ctx, takeover: takeover, grants: held, connected: make(chan struct{}), left: make(chan struct{}),
	}
}

// GetDevicePluginOptions implements the API.
func (r *registration) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch implements the API.
func (r *registration) ListAndWatch(
	_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	if !r.listening.CompareAndSwap(false, true) {
		return status.Error(codes.FailedPrecondition, "this placeholder has a listener already; register another time")
	}
	defer close(r.left)
	var sent []*pluginapi.Device
	for first := true; ; first = false {
		list, changed := r.devices()
		if first || !slices.EqualFunc(list, sent, equalDevices) {
			if isContested(stream.Context(), r.takeover) { // another plugin may have registered meanwhile
				return status.Error(codes.Aborted, "the kubelet has the resource from another device plugin")
			}
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
			sent = list
		}
		if first {
			close(r.connected)
			r.takeover.Offer()
		}
		timer := time.NewTimer(healthInterval)
		select {
		case <-changed:
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			return nil
		case <-stream.Context().Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// devices returns the resource's devices for the kubelet, and a channel that is closed when they
// may be others.
//
// An unhealthy device that a pod of the scheduler's holds is healthy there: the kubelet knows the
// pod by another ID, and would have one healthy device too few to admit the next pod.
func (r *registration) devices() (list []*pluginapi.Device, changed <-chan struct{}) {
	scheduled := map[types.ResourceName]bool{} // devices that pods hold by the scheduler
	for _, allocation := range r.grants.List() {
		if !allocation.Adopted {
			for name := range allocation.Holds() {
				scheduled[name] = true
			}
		}
	}
	devices, changed := r.takeover.Devices()
	for _, d := range devices {
		health := pluginapi.Healthy
		if d.Unhealthy && !scheduled[d.Name] {
			health = pluginapi.Unhealthy
		}
		list = append(list, &pluginapi.Device{ID: d.ID, Health: health})
	}
	return list, changed
}

func equalDevices(a, b *pluginapi.Device) bool {
	return a.GetID() == b.GetID() && a.GetHealth() == b.GetHealth()
}

// Allocate implements the API: the scheduler has allocated.
func (r *registration) Allocate(
	_ context.Context, request *pluginapi.AllocateRequest,
) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for range request.GetContainerRequests() {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Annotations: map[string]string{kubeletstate.PlaceholderAnnotation: "true"},
		})
	}
	return response, nil
}
