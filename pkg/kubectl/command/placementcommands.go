// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

func whyCommand(env *environment) *cobra.Command {
	o := &placementOptions{env: env}
	command := &cobra.Command{
		Use:   "why POD",
		Short: "Say why a pod waits, and what would let it run",
		Long: `Say why a pod waits: the reasons of all nodes, in the words of the pod's events. If its node refuses
a bound pod, give the node's reason.

Then name the smallest changes by which it would fit: the fewest pods to end, one node more, or one
constraint of the pod less. The scheduler tries each of them on a copy of the cluster's state.

The exit status is 0 if the pod fits or has a node, 1 if it waits or its node refuses it, and 2 if
there is no answer.`,
		Example: `  # Why does it wait?
  kubectl device why trainer-0

  # Look longer for the smallest change
  kubectl device why trainer-0 -n research --within 30s`,
		Args:              exactlyOnePod,
		ValidArgsFunction: completeOnePod(env),
		RunE: func(command *cobra.Command, args []string) error {
			why, err := o.whyRefused(command, args[0])
			if err != nil {
				return err
			}
			if why == nil {
				why = &schedulerapi.Why{}
				err = o.query(command, schedulerapi.WhyPath, func() (any, error) {
					return schedulerapi.WhyRequest{
						Pod: o.podName(args[0]), Within: o.within.Milliseconds(),
					}, nil
				}, why)
			}
			if err != nil {
				return err
			}
			if !o.output.table() {
				err = printObject(env.Out, o.output.format, why)
			} else {
				err = o.printWhy(why)
			}
			return o.finish(err, why.Problem == "" && (why.Node != "" || len(why.Fits) > 0))
		},
	}
	o.addFlags(command)
	return command
}

// whyRefused returns why the node of a pod refuses it, or nil if it does not, or the pod cannot be
// read. A scheduler has nothing to say about a pod that it has bound.
func (o *placementOptions) whyRefused(command *cobra.Command, name string) (*schedulerapi.Why, error) {
	if err := o.output.check(command); err != nil {
		return nil, &exitStatus{placementFailed, err}
	}
	client, namespace, err := o.env.client()
	if err != nil {
		return nil, &exitStatus{placementFailed, err}
	}
	o.namespace = namespace
	meant := o.podName(name)
	pod, err := client.Pods(meant.Namespace).Get(command.Context(), meant.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil // the scheduler's answer says so, or needs no such right
	}
	has := devices.NewPod(pod)
	if has == nil || has.Node == "" || has.State != devices.Refused && has.State != devices.Unreadable {
		return nil, nil
	}
	return &schedulerapi.Why{Pod: meant, Node: has.Node, Problem: has.Message}, nil
}

func fitCommand(env *environment) *cobra.Command {
	o := &manifestOptions{placementOptions: placementOptions{env: env}}
	command := &cobra.Command{
		Use:   "fit -f FILE",
		Short: "Say where pods would go now, with which devices",
		Long: `Say where the pods of a manifest would go now, and with which devices: one after another, each
sees those before it. If one would wait, say why, and which change would let it run.

The scheduler answers on a copy of the cluster's state, and creates nothing. Pods that request devices
have its name, as an admission policy gives it to them. The scheduler does not know what other
admission plugins would add; the example adds that to a Pod.

The exit status is 0 if all fit, 1 if not, and 2 if there is no answer.`,
		Example: `  # Where would it go?
  kubectl device fit -f trainer.yaml

  # With what admission plugins add to a Pod
  kubectl create -f trainer.yaml --dry-run=server -o yaml | kubectl device fit -f -

  # Are there 16 of them?
  kubectl device fit -f trainer.yaml --replicas 16 > /dev/null && kubectl apply -f trainer.yaml`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return placementUsage(command, fmt.Errorf("unexpected argument %q: name a file with -f", args[0]))
			case o.file == "":
				return placementUsage(command, errors.New("must specify -f: a file, or - for standard input"))
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return o.run(command, schedulerapi.FitPath, func() (any, error) { return o.fit() })
		},
	}
	o.addFlags(command)
	return command
}

func whatifCommand(env *environment) *cobra.Command {
	o := &manifestOptions{placementOptions: placementOptions{env: env}}
	command := &cobra.Command{
		Use:   "whatif (POD | -f FILE)",
		Short: "Say where pods would go if the cluster were changed",
		Long: `Say where a pod that waits, or the pods of a manifest, would go after changes: without a pod, with a
node more, with a node or a device less. The scheduler makes the changes on a copy of the cluster's
state. The cluster stays as it is.

The exit status is 0 if all would fit, 1 if not, and 2 if there is no answer.`,
		Example: `  # Would it run without two others?
  kubectl device whatif trainer-0 --without pod/notebook --without research/evaluation

  # With one more node like node-2
  kubectl device whatif trainer-0 --with-node like/node-2

  # What would become of a new pod while node-1 and a GPU of node-2 are repaired?
  kubectl device whatif -f trainer.yaml --cordon node-1 --cordon node-2/gpu-4`,
		ValidArgsFunction: completeOnePod(env),
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case o.file == "":
				return exactlyOnePod(command, args)
			case len(args) > 0:
				return placementUsage(command, errors.New("a pod that waits or a manifest: one of them is meant"))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command, schedulerapi.WhatIfPath, func() (any, error) { return o.whatif(args) })
		},
	}
	o.addFlags(command)
	flags := command.Flags()
	flags.StringArrayVar(&o.without, "without", nil, "End this pod: pod/NAME, or NAMESPACE/NAME. Can be repeated.")
	flags.StringArrayVar(&o.withNode, "with-node", nil,
		"Add a node that is built like another one: like/NODE. It has that node's DaemonSets, and nothing else. May "+
			"be repeated.")
	flags.StringArrayVar(&o.cordon, "cordon", nil,
		"Let a node or a device take no more pods: NODE, or NODE/DEVICE, where DEVICE is the device's name or as "+
			"much of the end of its path as is unambiguous. Can be repeated.")
	for name, complete := range map[string]completion{
		"without": prefixed("pod/", completePods(env)), "with-node": prefixed("like/", completeNodes(env)),
		"cordon": completeDevices(env),
	} {
		_ = command.RegisterFlagCompletionFunc(name, complete) // the flag is there
	}
	return command
}

// prefixed completes names behind a prefix, for all arguments of the command.
func prefixed(prefix string, names completion) completion {
	return func(command *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		rest, ok := strings.CutPrefix(begun, prefix)
		if !ok && !strings.HasPrefix(prefix, begun) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if !ok {
			rest = ""
		}
		found, directive := names(command, nil, rest)
		for i := range found {
			found[i] = prefix + found[i]
		}
		return found, directive
	}
}

func (o *manifestOptions) run(command *cobra.Command, path string, question func() (any, error)) error {
	var placements schedulerapi.Placements
	if err := o.query(command, path, question, &placements); err != nil {
		return err
	}
	var err error
	if !o.output.table() {
		err = printObject(o.env.Out, o.output.format, placements)
	} else {
		err = o.printPlacements(&placements)
	}
	return o.finish(err, placements.Fits)
}
