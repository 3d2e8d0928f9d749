// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kube-scheduler is the Kubernetes scheduler that chooses a pod's node and its exact devices. It takes
// upstream's arguments and --devschedpath, the folder of device scheduler plugins.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/scheduler"
)

func main() {
	pluginload.MaybeChild()
	os.Exit(cli.Run(scheduler.NewCommand()))
}
