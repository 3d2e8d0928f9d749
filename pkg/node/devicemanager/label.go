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

// directoryMode is the kubelet's: only root may register.
const directoryMode = 0o750

// fileLabel is the label that the kubelet gives to its directories of plugins: files of containers.
const fileLabel = "system_u:object_r:container_file_t:s0"

// labels are SELinux's labels of files.
type labels interface {
	// Enabled reports whether SELinux is on.
	Enabled() bool
	// SetFileLabel sets the label of the file at path.
	SetFileLabel(path, label string) error
}

// machine has the labels of this machine.
type machine struct{}

func (machine) Enabled() bool                         { return selinux.GetEnabled() }
func (machine) SetFileLabel(path, label string) error { return selinux.SetFileLabel(path, label) }

// makeDirectory makes a directory of plugins if it is missing, and has SELinux allow containers to
// write there that are not privileged.
func makeDirectory(ctx context.Context, directory string, l labels) error {
	if err := os.MkdirAll(directory, directoryMode); err != nil {
		return err
	}
	if !l.Enabled() {
		return nil
	}
	if err := l.SetFileLabel(directory, fileLabel); err != nil {
		klog.FromContext(ctx).Error(err, "Device plugins in containers that are not privileged may not register",
			logkey.Directory, directory)
	}
	return nil
}
