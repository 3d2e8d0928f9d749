// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/node/uninstall"
)

// uninstallCommand gives all nodes back.
func uninstallCommand() *cobra.Command {
	o := uninstall.Options{Timeout: 10 * time.Minute}
	command := &cobra.Command{
		Use: "uninstall", Short: "Give all nodes back that kubecri agent has enrolled",
		Long: "Give all nodes back that kubecri agent has enrolled. A hook of the chart runs this before anything " +
			"else is deleted. It refuses while pods hold devices, and names them.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var err error
			if o.Client, err = podClient(); err != nil {
				return err
			}
			o.Progress = command.ErrOrStderr()
			ctx, stop := untilSignalled(command.Context(), os.Stderr)
			defer stop()
			return uninstall.Run(ctx, o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "the release's namespace")
	flags.BoolVar(&o.Drain, "drain", o.Drain, "evict the pods that hold devices, through the Eviction API")
	flags.BoolVar(&o.SchedulerGoes, "scheduler-goes", o.SchedulerGoes,
		"KubeDevice's scheduler goes, too: refuse while pods wait for it, or name them in the end with --drain")
	flags.StringVar(&o.PolicyBinding, "delete-policy-binding", o.PolicyBinding, "with --scheduler-goes, "+
		"MutatingAdmissionPolicyBinding to delete when all nodes are given back; then the pods with a controller are "+
		"evicted that wait for the scheduler, whose name the policy gave them")
	flags.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long the nodes may take")
	flags.StringVar(&o.Secret, "delete-secret", o.Secret, "Secret to delete in the end")
	flags.StringVar(&o.ConfigMap, "delete-config-map", o.ConfigMap, "ConfigMap to delete in the end")
	return command
}
