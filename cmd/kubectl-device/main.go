// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-device is a plugin of kubectl: kubectl device shows the devices of a cluster, who
// holds them, and who waits for them. See package command.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // every way to log in that kubectl has

	"github.com/kubedevice/kubedevice/pkg/kubectl/command"
)

func main() { os.Exit(command.Main()) }
