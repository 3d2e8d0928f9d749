// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// claims are attempts to get, by a claim of Dynamic Resource Allocation, a GPU that we allocate: on
// the node is the vendor's driver, too, which knows nothing of us.
func claims() []*Attempt {
	try := func(limit int64) Try {
		return func(ctx context.Context, s *Stage) (got Got, err error) {
			tenant, err := s.tenant(ctx)
			if err != nil {
				return Got{}, err
			}
			stop, err := s.startDriver(ctx)
			if err != nil {
				return Got{}, err
			}
			defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
			claim := &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
					Requests: []resourcev1.DeviceRequest{{
						Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: s.driver()},
					}},
				}},
			}
			if _, err := tenant.ResourceV1().ResourceClaims(s.namespace).Create(ctx, claim,
				metav1.CreateOptions{}); err != nil {
				return Got{}, err
			}
			pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", limit))
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}}
			pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
			return s.runs(ctx, tenant, pod)
		}
	}
	attempt := func(id, what string, limit int64) *Attempt {
		return &Attempt{
			ID: id, Who: Tenant, What: what, Defence: Firewall, Try: try(limit),
			Want: everywhere(RefusedByNode, "the CDI device nvidia.com/gpu="+id+" from the kubelet asks for devices"),
			Off:  Off{How: "the device firewall is off"},
		}
	}
	return []*Attempt{
		attempt("claim", "claims a GPU that KubeDevice allocates, from the vendor's DRA driver", 0),
		attempt("claim-beside", "claims one in addition to a GPU that it was allocated", 1),
	}
}

// driver is the name of the attempt's DRA driver, and of its class of devices.
func (s *Stage) driver() string { return s.attempt.ID + ".attack.example" }

// startDriver starts a DRA driver on the node scheduled, with one device, which is a GPU that we
// allocate. The container runtime knows it.
func (s *Stage) startDriver(ctx context.Context) (stop func(context.Context) error, err error) {
	name, node := s.driver(), s.node(scheduled)
	spec := fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", `+
		`"devices": [{"name": %q, "containerEdits": {"env": ["CLAIMED=1"]}}]}`, s.attempt.ID)
	file := "/run/cdi/" + s.attempt.ID + ".json"
	if said, err := node.Run(ctx, "/bin/sh", "-c", "mkdir -p /run/cdi && echo '"+spec+"' > "+file); err != nil {
		return nil, fmt.Errorf("describe the device to the runtime: %w: %s", err, said)
	}
	_, err = s.admin.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", name)},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	driver := &draDriver{name: name, node: node.Name, device: "nvidia.com/gpu=" + s.attempt.ID,
		socket: path.Join("/var/lib/kubelet/plugins", name+".sock")}
	server := grpc.NewServer()
	draapi.RegisterDRAPluginServer(server, driver)
	registrationapi.RegisterRegistrationServer(server, driver)
	for _, socket := range []string{driver.socket, path.Join("/var/lib/kubelet/plugins_registry", name+".sock")} {
		if err := node.Sandbox().Do(func() error {
			listener, err := net.Listen("unix", socket)
			if err == nil {
				go server.Serve(listener) //nolint:errcheck // it ends with Stop
			}
			return err
		}); err != nil {
			server.Stop()
			return nil, err
		}
	}
	// The kubelet removes what a driver published that it does not know yet.
	_, err = s.admin.ResourceV1().ResourceSlices().Create(ctx, &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: name, NodeName: &node.Name, Pool: resourcev1.ResourcePool{Name: node.Name, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0"}},
		},
	}, metav1.CreateOptions{})
	return func(ctx context.Context) error {
		server.Stop()
		_, err := node.Run(ctx, "/bin/rm", file)
		return err
	}, err
}

// draDriver is a DRA driver of one device, which CDI has under a name of the vendor's.
type draDriver struct {
	draapi.UnimplementedDRAPluginServer
	registrationapi.UnimplementedRegistrationServer
	name, node, device, socket string
}

// GetInfo implements the kubelet's registration of plugins.
func (d *draDriver) GetInfo(context.Context, *registrationapi.InfoRequest) (*registrationapi.PluginInfo, error) {
	return &registrationapi.PluginInfo{Type: registrationapi.DRAPlugin, Name: d.name, Endpoint: d.socket,
		SupportedVersions: []string{draapi.DRAPluginService}}, nil
}

// NotifyRegistrationStatus implements the kubelet's registration of plugins.
func (d *draDriver) NotifyRegistrationStatus(context.Context,
	*registrationapi.RegistrationStatus) (*registrationapi.RegistrationStatusResponse, error) {
	return &registrationapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements the kubelet's API of DRA drivers.
func (d *draDriver) NodePrepareResources(_ context.Context,
	request *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	prepared := map[string]*draapi.NodePrepareResourceResponse{}
	for _, claim := range request.GetClaims() {
		prepared[claim.GetUid()] = &draapi.NodePrepareResourceResponse{Devices: []*draapi.Device{{
			PoolName: d.node, DeviceName: "gpu-0", CdiDeviceIds: []string{d.device},
		}}}
	}
	return &draapi.NodePrepareResourcesResponse{Claims: prepared}, nil
}

// NodeUnprepareResources implements the kubelet's API of DRA drivers.
func (d *draDriver) NodeUnprepareResources(_ context.Context,
	request *draapi.NodeUnprepareResourcesRequest) (*draapi.NodeUnprepareResourcesResponse, error) {
	done := map[string]*draapi.NodeUnprepareResourceResponse{}
	for _, claim := range request.GetClaims() {
		done[claim.GetUid()] = &draapi.NodeUnprepareResourceResponse{}
	}
	return &draapi.NodeUnprepareResourcesResponse{Claims: done}, nil
}
