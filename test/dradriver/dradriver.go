// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dradriver is a driver of Dynamic Resource Allocation on one node of a test's cluster, for
// tests of how KubeDevice treats the drivers of vendors. What such a driver would have the hardware
// do is a variable that CDI sets in the container.
package dradriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/kube"
)

// Driver is a driver of one device, or of several.
type Driver struct {
	// Name is the driver's name, and that of the class of its devices.
	Name string
	// Kind is the first part of the devices' names in CDI: vendor/class.
	Kind string
	// Device is the name in CDI of the only device. It is not used with Devices.
	Device string
	// Devices are the devices of a driver that has several.
	Devices []Device
}

// Device is one of several devices of a driver.
type Device struct {
	// Name is the device's name in the driver's pool, and in CDI.
	Name string
	// Attributes are those that the driver publishes.
	Attributes map[resourcev1.QualifiedName]string
}

// Variable returns what CDI adds to the environment of a container that has the device.
func (d Device) Variable() string {
	return VariablePrefix + strings.ReplaceAll(d.Name, "-", "_") + "=1"
}

// VariablePrefix begins the variables of all devices of drivers that have several.
const VariablePrefix = "CLAIMED_"

// CDI returns the name of the only device in CDI.
func (d Driver) CDI() string { return d.cdi(d.Device) }

func (d Driver) cdi(device string) string { return d.Kind + "=" + device }

// Variable is what CDI adds to the environment of a container that has the only device.
const Variable = "CLAIMED=1"

// deviceName is the name of the only device in the driver's pool.
const deviceName = "device-0"

// Start starts the driver on the node, and publishes the device and its class. stop ends the
// driver and removes what it published.
func Start(
	ctx context.Context, client *kube.Client, node *cluster.Node, d Driver,
) (stop func(context.Context) error, err error) {
	var described []any
	describe := func(device, variable string) {
		described = append(described, map[string]any{
			"name": device, "containerEdits": map[string]any{"env": []string{variable}},
		})
	}
	for _, device := range d.Devices {
		describe(device.Name, device.Variable())
	}
	if len(d.Devices) == 0 {
		describe(d.Device, Variable)
	}
	spec, err := json.Marshal(map[string]any{"cdiVersion": "0.5.0", "kind": d.Kind, "devices": described})
	if err != nil {
		return nil, err
	}
	file := "/run/cdi/" + d.Name + ".json"
	if said, err := node.Run(ctx, "/bin/sh", "-c", "mkdir -p /run/cdi && echo '"+string(spec)+"' > "+file); err != nil {
		return nil, fmt.Errorf("describe the device to the runtime: %w: %s", err, said)
	}
	server, err := d.serve(client, node)
	if err != nil {
		return nil, err
	}
	publishing, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop = func(ctx context.Context) error {
		end()
		<-ended
		server.Stop()
		_, err := node.Run(ctx, "/bin/rm", append(d.sockets(), file)...)
		class := client.ResourceV1().DeviceClasses().Delete(ctx, d.Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(class) {
			class = nil
		}
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
	if apierrors.IsAlreadyExists(err) { // made by the driver of another node
		err = nil
	}
	if err == nil {
		err = d.publish(ctx, client, node)
	}
	if err != nil {
		end()
		server.Stop()
		return nil, err
	}
	go func() {
		defer close(ended)
		wait.UntilWithContext(publishing, func(ctx context.Context) {
			_ = d.publish(ctx, client, node) // the API server may be away
		}, time.Second)
	}()
	return stop, nil
}

// publish publishes the devices, unless they are published. The kubelet removes what a driver
// published that it does not know yet, also when it starts again.
func (d Driver) publish(ctx context.Context, client *kube.Client, node *cluster.Node) error {
	_, err := client.ResourceV1().ResourceSlices().Create(ctx, d.slice(node), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// slice returns the node's pool of the device.
func (d Driver) slice(node *cluster.Node) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name + "." + node.Name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: d.Name, NodeName: &node.Name, Pool: resourcev1.ResourcePool{Name: node.Name, ResourceSliceCount: 1},
			Devices: d.published(),
		},
	}
}

func (d Driver) published() []resourcev1.Device {
	if len(d.Devices) == 0 {
		return []resourcev1.Device{{Name: deviceName}}
	}
	var all []resourcev1.Device
	for _, device := range d.Devices {
		attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
		for name, value := range device.Attributes {
			attributes[name] = resourcev1.DeviceAttribute{StringValue: &value}
		}
		all = append(all, resourcev1.Device{Name: device.Name, Attributes: attributes})
	}
	return all
}

// sockets are where the node's kubelet calls the driver, and where it is registered.
func (d Driver) sockets() []string {
	const kubelet = "/var/lib/kubelet"
	socket := d.Name + ".sock"
	return []string{path.Join(kubelet, "plugins", socket), path.Join(kubelet, "plugins_registry", socket)}
}

// serve serves the kubelet on the node's sockets for the driver and its registration.
func (d Driver) serve(client *kube.Client, node *cluster.Node) (*grpc.Server, error) {
	plugin := &driver{Driver: d, client: client, node: node.Name, socket: d.sockets()[0]}
	server := grpc.NewServer()
	draapi.RegisterDRAPluginServer(server, plugin)
	registrationapi.RegisterRegistrationServer(server, plugin)
	for _, socket := range d.sockets() {
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
	client       *kube.Client
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
func (d *driver) NodePrepareResources(ctx context.Context,
	request *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	prepared := map[string]*draapi.NodePrepareResourceResponse{}
	for _, claim := range request.GetClaims() {
		response := &draapi.NodePrepareResourceResponse{}
		devices, err := d.prepare(ctx, claim)
		if err != nil {
			response.Error = err.Error()
		}
		response.Devices = devices
		prepared[claim.GetUid()] = response
	}
	return &draapi.NodePrepareResourcesResponse{Claims: prepared}, nil
}

// prepare returns the devices of a claim: the only one, or those of several that are allocated to
// it.
func (d *driver) prepare(ctx context.Context, claim *draapi.Claim) ([]*draapi.Device, error) {
	if len(d.Devices) == 0 {
		return []*draapi.Device{{PoolName: d.node, DeviceName: deviceName, CdiDeviceIds: []string{d.CDI()}}}, nil
	}
	found, err := d.client.ResourceV1().ResourceClaims(claim.GetNamespace()).Get(ctx, claim.GetName(),
		metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if string(found.UID) != claim.GetUid() || found.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s has no allocation", claim.GetName())
	}
	var devices []*draapi.Device
	for _, result := range found.Status.Allocation.Devices.Results {
		if result.Driver == d.Name {
			devices = append(devices, &draapi.Device{
				RequestNames: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
				CdiDeviceIds: []string{d.cdi(result.Device)},
			})
		}
	}
	return devices, nil
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
