// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// Exit statuses of questions about placement.
const (
	placementWaits  = 1
	placementFailed = 2
)

// placementOptions are what the questions about placement have in common.
type placementOptions struct {
	env       *environment
	output    output
	within    time.Duration
	namespace string
	url       string
}

func (o *placementOptions) addFlags(command *cobra.Command) {
	o.output.addFlags(command, asJSON, asYAML, wide)
	addSchedulerFlag(command, &o.url)
	command.SetFlagErrorFunc(placementUsage)
	command.Flags().DurationVar(&o.within, "within", schedulerapi.DefaultWithin*time.Millisecond, fmt.Sprintf(
		"How long the scheduler may take, up to %v. When it is over, the smallest change is the best one found.",
		schedulerapi.MaxWithin*time.Millisecond))
}

// addSchedulerFlag adds the flag that says which scheduler is queried.
func addSchedulerFlag(command *cobra.Command, url *string) {
	command.Flags().StringVar(url, "scheduler", "", "Scheduler to query, as https://HOST:PORT. The default is the one "+
		"that leads, through a port-forward to its pod.")
}

// placementUsage is a mistake in the arguments.
func placementUsage(command *cobra.Command, err error) error {
	return &exitStatus{placementFailed, &usageError{err, command.CommandPath()}}
}

// query checks the flags, queries the scheduler, and returns its answer.
func (o *placementOptions) query(command *cobra.Command, path string, in func() (any, error), out any) error {
	if err := o.output.check(command); err != nil {
		return &exitStatus{placementFailed, err}
	}
	failed := func(err error) error { return &exitStatus{placementFailed, err} }
	_, namespace, err := o.env.client()
	if err != nil {
		return failed(err)
	}
	o.namespace = namespace
	question, err := in()
	if err != nil {
		return failed(err)
	}
	scheduler, disconnect, err := o.env.placement(command.Context(), o.url)
	if err != nil {
		return failed(err)
	}
	defer disconnect()
	if err := scheduler.Query(command.Context(), http.MethodPost, path, question, out); err != nil {
		return failed(err)
	}
	return nil
}

// exactlyOnePod demands one argument.
func exactlyOnePod(command *cobra.Command, args []string) error {
	if len(args) != 1 {
		return placementUsage(command, fmt.Errorf("%d arguments: name one pod", len(args)))
	}
	return nil
}

// completeOnePod completes the first argument by the names of pods.
func completeOnePod(env *environment) completion {
	pods := completePods(env)
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return pods(command, args, prefix)
	}
}

// finish returns how a command ends that has printed its answer, or failed to.
func (o *placementOptions) finish(err error, fits bool) error {
	switch {
	case err != nil:
		return &exitStatus{placementFailed, err}
	case !fits:
		return &exitStatus{status: placementWaits}
	default:
		return nil
	}
}

// podName reads what names a pod: POD, pod/POD or NAMESPACE/POD.
func (o *placementOptions) podName(text string) schedulerapi.PodName {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = "pod", text
	}
	if slices.Contains([]string{"pod", "pods", "po"}, namespace) {
		namespace = o.namespace
	}
	return schedulerapi.PodName{Namespace: namespace, Name: name}
}
