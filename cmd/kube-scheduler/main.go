// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kube-scheduler is the Kubernetes scheduler that chooses a pod's node and its exact
// devices. It takes upstream's arguments and --devschedpath, the directory of device scheduler
// plugins. The device scheduler for devices of the kubelet's own device plugins is built in.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/scheduler"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
)

func main() {
	pluginload.MaybeChild()
	reserveHeap()
	trimAfterStart()
	os.Exit(cli.Run(scheduler.NewCommand(allocation.Named{File: "built in", Plugin: kubeletplugin.New()})))
}
