// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
)

// podOf returns the pod of a sandbox.
func podOf(sandbox *api.PodSandbox) admission.Pod {
	return admission.Pod{
		UID: sandbox.GetUid(), Namespace: sandbox.GetNamespace(), Name: sandbox.GetName(),
		Annotations: sandbox.GetAnnotations(),
	}
}

// containerOf returns a container as admission reads it. The runtime describes what it would give
// to the OCI runtime, so there are variables of the image, and devices that CDI has added. Mounts
// that are no bind mounts, such as /proc, are the runtime's own.
func containerOf(sandbox *api.PodSandbox, c *api.Container) admission.Container {
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.GetName()},
		Annotations: annotationsOf(sandbox, c),
	}
	for _, env := range c.GetEnv() {
		key, value, _ := strings.Cut(env, "=")
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(value)})
	}
	for _, m := range c.GetMounts() {
		if m.GetType() == "bind" || slices.Contains(m.GetOptions(), "rbind") {
			config.Mounts = append(config.Mounts, mountOf(m))
		}
	}
	for _, d := range c.GetCDIDevices() {
		config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: d.GetName()})
	}
	rules := c.GetLinux().GetResources().GetDevices()
	if isPrivileged(rules) {
		// It has all devices of the node: none of them was requested.
		config.Linux = &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{Privileged: true},
		}
		return admission.Container{Pod: podOf(sandbox), Config: config, WithImage: true, Created: createdAt(c)}
	}
	for _, d := range c.GetLinux().GetDevices() {
		config.Devices = append(config.Devices, &runtimeapi.Device{
			ContainerPath: d.GetPath(), HostPath: hostPathOf(d), Permissions: permissionsOf(d, rules),
		})
	}
	return admission.Container{Pod: podOf(sandbox), Config: config, WithImage: true, Created: createdAt(c)}
}

// annotationsOf returns the container's own annotations. A runtime may be configured to copy some
// of the pod's.
func annotationsOf(sandbox *api.PodSandbox, c *api.Container) map[string]string {
	own := map[string]string{}
	for key, value := range c.GetAnnotations() {
		if inherited, is := sandbox.GetAnnotations()[key]; !is || inherited != value {
			own[key] = value
		}
	}
	return own
}

// isPrivileged reports whether one of the rules allows all devices, which is how a privileged
// container looks to NRI.
func isPrivileged(rules []*api.LinuxDeviceCgroup) bool {
	return slices.ContainsFunc(rules, func(rule *api.LinuxDeviceCgroup) bool {
		return rule.GetAllow() && (rule.GetType() == "" || rule.GetType() == "a") && isWildcard(rule.GetMajor()) &&
			isWildcard(rule.GetMinor()) && strings.Contains(rule.GetAccess(), "r") && strings.Contains(rule.GetAccess(),
			"w")
	})
}

// isWildcard reports whether a number of a rule stands for all.
func isWildcard(number *api.OptionalInt64) bool { return number == nil || number.GetValue() < 0 }

func mountOf(m *api.Mount) *runtimeapi.Mount {
	mount := &runtimeapi.Mount{
		ContainerPath: m.GetDestination(), HostPath: m.GetSource(), Readonly: slices.Contains(m.GetOptions(), "ro"),
	}
	for propagation, option := range propagations {
		if slices.Contains(m.GetOptions(), option) {
			mount.Propagation = propagation
		}
	}
	return mount
}

// hostPathOf returns the device's path on the node if that is the same as in the container, and
// otherwise a text that names it: NRI has its numbers alone.
func hostPathOf(d *api.LinuxDevice) string {
	if there, err := nodeAt(d.GetPath()); err == nil && there.GetType() == d.GetType() &&
		there.GetMajor() == d.GetMajor() && there.GetMinor() == d.GetMinor() {
		return d.GetPath()
	}
	return fmt.Sprintf("%s %d:%d", d.GetType(), d.GetMajor(), d.GetMinor())
}

// permissionsOf returns what the rules allow for the device by name.
func permissionsOf(d *api.LinuxDevice, rules []*api.LinuxDeviceCgroup) string {
	permissions := ""
	for _, rule := range rules {
		if rule.GetAllow() && rule.GetType() == d.GetType() &&
			!isWildcard(rule.GetMajor()) && !isWildcard(rule.GetMinor()) &&
			rule.GetMajor().GetValue() == d.GetMajor() && rule.GetMinor().GetValue() == d.GetMinor() {
			permissions += rule.GetAccess()
		}
	}
	return permissions
}

// nodeAt returns the device node at the path of this machine.
func nodeAt(path string) (*api.LinuxDevice, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeDevice == 0 {
		return nil, fmt.Errorf("%s is not a device node", path)
	}
	kind := "b"
	if info.Mode()&os.ModeCharDevice != 0 {
		kind = "c"
	}
	return &api.LinuxDevice{
		Path: path, Type: kind, Major: int64(unix.Major(stat.Rdev)), Minor: int64(unix.Minor(stat.Rdev)),
		FileMode: api.FileMode(info.Mode().Perm()), Uid: api.UInt32(stat.Uid), Gid: api.UInt32(stat.Gid),
	}, nil
}

// createdAt returns when the runtime created the container; the zero time where it does not say so.
func createdAt(c *api.Container) time.Time {
	if c.GetCreatedAt() <= 0 {
		return time.Time{}
	}
	return time.Unix(0, c.GetCreatedAt())
}
