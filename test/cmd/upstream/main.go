// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command upstream is every Kubernetes program of the test cluster, and etcd, in one executable:
// which one it is, its own file name says (argv[0], as busybox does). One link instead of six, and
// one file of 150 MB instead of 500.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	"k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs are the mains by file name.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          serve(apiserver.NewAPIServerCommand),
	"kube-controller-manager": serve(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          serve(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 serve(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl": func() {
		if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

func serve(newCommand func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(newCommand())) }
}

func main() {
	name := filepath.Base(os.Args[0])
	program, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "upstream: no program %q: make a link to this file named one of %q\n", name,
			slices.Sorted(maps.Keys(programs)))
		os.Exit(2)
	}
	program()
}
