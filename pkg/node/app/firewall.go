// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
)

// describeVariables prepares for the firewall what it sets last in containers: where kubecri is an
// NRI plugin, the commonest CDI devices, so that the runtime knows them before a container needs
// one. The proxy needs none.
func describeVariables(ctx context.Context, wall *firewall.Firewall, variables *cdi.Variables, byNRI bool) {
	if !byNRI {
		if err := variables.Remove(); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove the CDI devices of the other mode")
		}
		return
	}
	for _, variable := range wall.Neutral() {
		if _, err := variables.Device([]string{variable}); err != nil {
			klog.FromContext(ctx).Error(err, "Containers are refused in which a variable stands twice that requests "+
				"devices")
			return
		}
	}
}

const (
	// sandboxTimeout is how long the runtime may take to describe a sandbox.
	sandboxTimeout = 5 * time.Second
	// plainSandboxes is of how many sandboxes it is remembered that they have no annotation which
	// the firewall reads. Annotations of a sandbox never change.
	plainSandboxes = 1 << 10
)

// sandboxes are those of a container runtime.
type sandboxes struct {
	client runtimeapi.RuntimeServiceClient
	plain  *cache.Cache[string, bool] // by ID, true
}

var _ admission.Sandboxes = sandboxes{}

// newSandboxes returns the sandboxes of the runtime behind conn.
func newSandboxes(conn grpc.ClientConnInterface) sandboxes {
	return sandboxes{runtimeapi.NewRuntimeServiceClient(conn), cache.New[string, bool](plainSandboxes)}
}

// Annotations implements admission.Sandboxes. The runtime describes each sandbox once, which takes
// 0.3 ms, unless it has such an annotation.
func (s sandboxes) Annotations(ctx context.Context, id string) (map[string]string, error) {
	if plain, _ := s.plain.Get(id); plain {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	status, err := s.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", id, err)
	}
	read := status.GetStatus().GetAnnotations()
	maps.DeleteFunc(read, func(key, _ string) bool { return !firewall.ReadsAnnotation(key) })
	if len(read) == 0 {
		s.plain.Add(id, true)
	}
	return read, nil
}

// exists reports whether there is a file at the path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// deviceFiles are the device files of this machine.
type deviceFiles struct{}

var _ firewall.DeviceFiles = deviceFiles{}

// Number implements firewall.DeviceFiles.
func (deviceFiles) Number(path string) (firewall.DeviceNumber, error) {
	info, err := os.Stat(path)
	if err != nil {
		return firewall.DeviceNumber{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeDevice == 0 {
		return firewall.DeviceNumber{}, fmt.Errorf("%s is not a device node", path)
	}
	return firewall.DeviceNumber{
		Block: info.Mode()&os.ModeCharDevice == 0, Major: unix.Major(stat.Rdev), Minor: unix.Minor(stat.Rdev),
	}, nil
}

// Glob implements firewall.DeviceFiles.
func (deviceFiles) Glob(pattern string) []string {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil // patterns are checked before
	}
	return paths
}

// Made implements firewall.DeviceFiles. What is written to a device does not change the file.
func (deviceFiles) Made(path string) (time.Time, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}

// vendorList is a flag whose value is a list of vendors in JSON, as of the configuration file.
type vendorList []firewall.Vendor

// String implements pflag.Value.
func (l *vendorList) String() string {
	if len(*l) == 0 {
		return ""
	}
	written, err := json.Marshal(*l)
	if err != nil {
		return err.Error() // cannot be: it has nothing but texts
	}
	return string(written)
}

// Type implements pflag.Value.
func (l *vendorList) Type() string { return "json" }

// Set implements pflag.Value.
func (l *vendorList) Set(text string) error {
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	var list []firewall.Vendor
	if err := decoder.Decode(&list); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("there is something behind the list")
	}
	seen := map[string]bool{}
	for _, vendor := range list {
		if err := vendor.Validate(); err != nil {
			return err
		}
		if seen[vendor.Name] {
			return fmt.Errorf("vendor %q stands twice", vendor.Name)
		}
		seen[vendor.Name] = true
	}
	*l = nil
	if len(list) > 0 {
		*l = list
	}
	return nil
}
