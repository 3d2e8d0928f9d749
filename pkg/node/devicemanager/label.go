// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"os"

	"github.com/opencontainers/selinux/go-selinux"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// fileLabel is the label that the kubelet gives to its directories of plugins: files of containers.
const fileLabel = "system_u:object_r:container_file_t:s0"

// labels is SELinux on this machine.
type labels struct {
	enabled func() bool
	set     func(path, label string) error
}

var machinesLabels = labels{selinux.GetEnabled, selinux.SetFileLabel}

// makeDirectory makes a directory of plugins if it is missing, and has SELinux allow containers that
// are not privileged to write there.
func (m *Manager) makeDirectory(ctx context.Context, directory string) error {
	if err := os.MkdirAll(directory, directoryMode); err != nil {
		return err
	}
	if !m.labels.enabled() {
		return nil
	}
	if err := m.labels.set(directory, fileLabel); err != nil {
		klog.FromContext(ctx).Error(err, "Device plugins in containers that are not privileged may not register",
			logkey.Directory, directory)
	}
	return nil
}
