// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// propagations are the options of mounts.
var propagations = map[runtimeapi.MountPropagation]string{
	runtimeapi.MountPropagation_PROPAGATION_PRIVATE:           "rprivate",
	runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: "rslave",
	runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:     "rshared",
}

// adjustmentOf returns what admission adds to a container in the words of NRI. What NRI has no word
// for is an error.
func adjustmentOf(addition *runtimeapi.ContainerConfig) (*api.ContainerAdjustment, error) {
	a := &api.ContainerAdjustment{}
	for _, env := range addition.GetEnvs() {
		if err := checkName(env.GetKey()); err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", env.GetKey(), err)
		}
		a.AddEnv(env.GetKey(), string(env.GetValue()))
	}
	for key, value := range addition.GetAnnotations() {
		if err := checkName(key); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", key, err)
		}
		a.AddAnnotation(key, value)
	}
	for _, m := range addition.GetMounts() {
		if m.GetSelinuxRelabel() {
			return nil, fmt.Errorf("mount of %s: the device plugin wants it relabelled for SELinux, which NRI cannot "+
				"do; label it on the node, or use --mode=cri", m.GetHostPath())
		}
		access := "rw"
		if m.GetReadonly() {
			access = "ro"
		}
		a.AddMount(&api.Mount{
			Destination: m.GetContainerPath(), Source: m.GetHostPath(), Type: "bind",
			Options: []string{"rbind", propagations[m.GetPropagation()], access},
		})
	}
	for _, d := range addition.GetDevices() {
		if err := addDevice(a, d); err != nil {
			return nil, err
		}
	}
	for _, d := range addition.GetCDIDevices() {
		a.AddCDIDevice(&api.CDIDevice{Name: d.GetName()})
	}
	return a, checkComplete(addition)
}

// checkComplete returns an error if admission adds what adjustmentOf does not read: the container
// must not start without it.
func checkComplete(addition *runtimeapi.ContainerConfig) error {
	rest := proto.CloneOf(addition)
	rest.Envs, rest.Annotations, rest.Mounts, rest.Devices, rest.CDIDevices = nil, nil, nil, nil, nil
	if proto.Size(rest) > 0 {
		return fmt.Errorf("kubecri cannot give the container by NRI what its device plugins want (%v); use --mode=cri",
			rest)
	}
	return nil
}

// errMarked is why a name cannot be used: with this sign NRI would remove what it names.
var errMarked = errors.New("NRI takes a name that begins with - for a removal; change the device plugin, or use " +
	"--mode=cri")

func checkName(name string) error {
	if _, marked := api.IsMarkedForRemoval(name); marked {
		return errMarked
	}
	return nil
}

// addDevice adds a device with exactly its permissions. NRI allows reading and writing, and mknod
// for block devices, of each device that is added; rules of its own correct that.
func addDevice(a *api.ContainerAdjustment, d *runtimeapi.Device) error {
	node, err := nodeAt(d.GetHostPath())
	if err != nil {
		return err
	}
	node.Path = d.GetContainerPath()
	a.AddDevice(node)
	allowed := node.AccessString()
	correct := func(allow bool, permissions string) {
		if permissions == "" {
			return
		}
		if a.Linux.Resources == nil {
			a.Linux.Resources = &api.LinuxResources{}
		}
		a.Linux.Resources.Devices = append(a.Linux.Resources.Devices, &api.LinuxDeviceCgroup{
			Allow: allow, Type: node.Type, Major: api.Int64(node.Major), Minor: api.Int64(node.Minor),
			Access: permissions,
		})
	}
	correct(false, withoutPermissions(allowed, d.GetPermissions()))
	correct(true, withoutPermissions(d.GetPermissions(), allowed))
	return nil
}

// withoutPermissions returns those of the permissions that are not among the others.
func withoutPermissions(permissions, others string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(others, r) {
			return -1
		}
		return r
	}, permissions)
}
