// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dradriver is a driver of Dynamic Resource Allocation with one device on one node of a
// test's cluster, for tests of how KubeDevice treats the drivers of vendors. What such a driver
// would have the hardware do is a variable that CDI sets in the container.
package dradriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/kube"
)

// Driver is a driver of one device.
type Driver struct {
	// Name is the driver's name, and that of the class of its device.
	Name string
	// Kind and Device are the two parts of the device's name in CDI: vendor/class and name.
	Kind, Device string
}

// CDI returns the name of the device in CDI.
func (d Driver) CDI() string { return d.Kind + "=" + d.Device }

// Variable is what CDI adds to the environment of a container that has the device.
const Variable = "CLAIMED=1"

// deviceName is the name of the device in the driver's pool.
const deviceName = "device-0"

// Start starts the driver on the node, and publishes the device and its class. stop ends the
// driver and removes what it published.
func Start(
	ctx context.Context, client *kube.Client, node *cluster.Node, d Driver,
) (stop func(context.Context) error, err error) {
	spec, err := json.Marshal(map[string]any{
		"cdiVersion": "0.5.0", "kind": d.Kind,
		"devices": []any{map[string]any{
			"name": d.Device, "containerEdits": map[string]any{"env": []string{Variable}},
		}},
	})
	if err != nil {
		return nil, err
	}
	file := "/run/cdi/" + d.Name + ".json"
	if said, err := node.Run(ctx, "/bin/sh", "-c", "mkdir -p /run/cdi && echo '"+string(spec)+"' > "+file); err != nil {
		return nil, fmt.Errorf("describe the device to the runtime: %w: %s", err, said)
	}
	server, err := d.serve(node)
	if err != nil {
		return nil, err
	}
	stop = func(ctx context.Context) error {
		server.Stop()
		_, err := node.Run(ctx, "/bin/rm", file)
		class := client.ResourceV1().DeviceClasses().Delete(ctx, d.Name, metav1.DeleteOptions{})
		// The kubelet removes the slice as well.
		slice := client.ResourceV1().ResourceSlices().Delete(ctx, d.slice(node).Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(slice) {
			slice = nil
		}
		return errors.Join(err, class, slice)
	}
	_, err = client.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", d.Name)},
		}}},
	}, metav1.CreateOptions{})
	if err == nil {
		// The kubelet removes what a driver published that it does not know yet.
		_, err = client.ResourceV1().ResourceSlices().Create(ctx, d.slice(node), metav1.CreateOptions{})
	}
	if err != nil {
		server.Stop()
		return nil, err
	}
	return stop, nil
}

// slice returns the node's pool of the device.
func (d Driver) slice(node *cluster.Node) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name + "." + node.Name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: d.Name, NodeName: &node.Name, Pool: resourcev1.ResourcePool{Name: node.Name, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: deviceName}},
		},
	}
}

// serve serves the kubelet on the node's sockets for the driver and its registration.
func (d Driver) serve(node *cluster.Node) (*grpc.Server, error) {
	plugin := &driver{Driver: d, node: node.Name, socket: path.Join("/var/lib/kubelet/plugins", d.Name+".sock")}
	server := grpc.NewServer()
	draapi.RegisterDRAPluginServer(server, plugin)
	registrationapi.RegisterRegistrationServer(server, plugin)
	for _, socket := range []string{plugin.socket, path.Join("/var/lib/kubelet/plugins_registry", d.Name+".sock")} {
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
	return server, nil
}

// Claim returns a claim for the driver's device.
func (d Driver) Claim(namespace, name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{
				Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: d.Name},
			}},
		}},
	}
}

// Use has all containers of a pod use a claim of its namespace.
func Use(pod *corev1.Pod, claim string) {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: claim, ResourceClaimName: &claim}}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: claim}}
		}
	}
}

// driver serves the kubelet.
type driver struct {
	draapi.UnimplementedDRAPluginServer
	registrationapi.UnimplementedRegistrationServer
	Driver
	node, socket string
}

// GetInfo implements the kubelet's registration of plugins.
func (d *driver) GetInfo(context.Context, *registrationapi.InfoRequest) (*registrationapi.PluginInfo, error) {
	return &registrationapi.PluginInfo{Type: registrationapi.DRAPlugin, Name: d.Name, Endpoint: d.socket,
		SupportedVersions: []string{draapi.DRAPluginService}}, nil
}

// NotifyRegistrationStatus implements the kubelet's registration of plugins.
func (d *driver) NotifyRegistrationStatus(context.Context,
	*registrationapi.RegistrationStatus) (*registrationapi.RegistrationStatusResponse, error) {
	return &registrationapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements the kubelet's API of DRA drivers.
func (d *driver) NodePrepareResources(_ context.Context,
	request *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	prepared := map[string]*draapi.NodePrepareResourceResponse{}
	for _, claim := range request.GetClaims() {
		prepared[claim.GetUid()] = &draapi.NodePrepareResourceResponse{Devices: []*draapi.Device{{
			PoolName: d.node, DeviceName: deviceName, CdiDeviceIds: []string{d.CDI()},
		}}}
	}
	return &draapi.NodePrepareResourcesResponse{Claims: prepared}, nil
}

// NodeUnprepareResources implements the kubelet's API of DRA drivers.
func (d *driver) NodeUnprepareResources(_ context.Context,
	request *draapi.NodeUnprepareResourcesRequest) (*draapi.NodeUnprepareResourcesResponse, error) {
	done := map[string]*draapi.NodeUnprepareResourceResponse{}
	for _, claim := range request.GetClaims() {
		done[claim.GetUid()] = &draapi.NodeUnprepareResourceResponse{}
	}
	return &draapi.NodeUnprepareResourcesResponse{Claims: done}, nil
}
