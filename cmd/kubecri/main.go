// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubecri runs between the kubelet and the container runtime and gives containers the
// devices that the scheduler chose for them. See package app for its flags.
package main

import (
	"os"

	"github.com/kubedevice/kubedevice/pkg/node/app"
	"github.com/kubedevice/kubedevice/pkg/node/conformance"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

func main() {
	// A plugin file is tried, and tested, in a child process first, which is this program again.
	pluginload.MaybeChild()
	conformance.MaybeChild()
	os.Exit(app.Main())
}
