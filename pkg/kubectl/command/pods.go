// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// podsOptions are the arguments of kubectl device pods.
type podsOptions struct {
	selection
	env           *environment
	allNamespaces bool
	watch         bool
}

func podsCommand(env *environment) *cobra.Command {
	o := &podsOptions{env: env}
	command := &cobra.Command{
		Use:     "pods [POD...]",
		Aliases: []string{"pod", "po"},
		Short:   "Show the devices of pods, and which pods wait for devices",
		Long: `Show the devices of each container, and since when it has them. Show which pods wait for devices, and
why, in the scheduler's words.

A pod that requests an extended resource in its limits counts as one that requests devices. Pods
that have ended hold nothing. The command leaves them out unless you name them.`,
		Example: `  # The pods of the current namespace that have devices or wait for some
  kubectl device pods

  # Those of all namespaces
  kubectl device pods -A

  # The devices of one pod, with their topology
  kubectl device pods trainer-0 -n research -o wide

  # The pods that wait for devices in any namespace
  kubectl device pods -A -o json | jq -r '.items[]
    | select(.state == "Waiting") | "\(.namespace)/\(.name) \(.message)"'`,
		ValidArgsFunction: completePods(env),
		RunE: func(command *cobra.Command, names []string) error {
			if err := o.take(command, names); err != nil {
				return err
			}
			if o.allNamespaces && len(names) > 0 {
				return &usageError{
					errors.New("a pod cannot be retrieved by name across all namespaces"), command.CommandPath(),
				}
			}
			return o.run(command.Context())
		},
	}
	o.addFlags(command, asJSON, asYAML, asNames, wide)
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false,
		"If present, list the pods of all namespaces. Namespace in current context is ignored even if specified with "+
			"--namespace.")
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "After listing the pods, watch for changes.")
	return command
}

func (o *podsOptions) run(ctx context.Context) error {
	reader, namespace, err := o.env.reader()
	if err != nil {
		return err
	}
	query := cluster.Query{Namespace: namespace, Names: o.names, Labels: o.selector}
	if o.allNamespaces {
		query.Namespace = ""
	}
	if o.watch {
		return o.watchPods(ctx, reader, query)
	}
	list, missing := o.read(ctx, reader, query)
	if list == nil && missing != nil {
		return missing
	}
	return errors.Join(o.print(list, query.Namespace), missing)
}

func (o *podsOptions) watchPods(ctx context.Context, reader *cluster.Reader, query cluster.Query) error {
	table := newPodsTable(o.env, &o.output, o.allNamespaces)
	w := &podsWatch{
		shown:   o.shown,
		printed: map[apitypes.UID]*devices.Pod{},
		print: func(pods []*devices.Pod) error {
			switch {
			case o.output.table():
				return table.write(pods)
			case o.output.format == asNames:
				return o.print(pods, query.Namespace)
			default:
				return eachAlone(pods, func(one []*devices.Pod) error {
					return printObject(o.env.Out, o.output.format, one[0])
				})
			}
		},
	}
	return reader.Watch(ctx, nil, &query, w.changed, nil)
}

// read returns the pods that are meant. With an error for pods that are missing it returns the
// others.
func (o *podsOptions) read(ctx context.Context, reader *cluster.Reader, query cluster.Query) ([]*devices.Pod, error) {
	shown := func(pod *corev1.Pod) bool { return o.shown(devices.NewPod(pod)) }
	pods, missing := reader.Pods(ctx, query, shown)
	if missing != nil && len(query.Names) == 0 {
		return nil, missing // the list is not complete
	}
	var list []*devices.Pod
	for _, pod := range pods {
		if p := devices.NewPod(pod); p != nil {
			list = append(list, p)
		} else {
			fmt.Fprintf(o.env.ErrOut, "Pod %q of namespace %q requests no devices\n", pod.Name, pod.Namespace)
		}
	}
	return list, missing
}

// shown reports whether a pod is shown. Nil stands for one without devices.
func (o *podsOptions) shown(pod *devices.Pod) bool {
	return pod != nil && (pod.State != devices.Finished || len(o.names) > 0)
}

// print prints pods of a namespace, or of all.
func (o *podsOptions) print(list []*devices.Pod, namespace string) error {
	switch {
	case o.output.table() && len(list) == 0:
		if len(o.names) > 0 {
			return nil // it was said of each
		}
		where := fmt.Sprintf("in %s namespace", namespace)
		if namespace == "" {
			where = "in any namespace"
		}
		_, err := fmt.Fprintf(o.env.ErrOut, "No pods that have devices or wait for some found %s.\n", where)
		return err
	case o.output.table():
		return newPodsTable(o.env, &o.output, o.allNamespaces).write(list)
	case o.output.format == asNames:
		return printNames(o.env.Out, "pod/", list, func(p *devices.Pod) string { return p.Name })
	case len(o.names) == 1 && len(list) == 1:
		return printObject(o.env.Out, o.output.format, list[0])
	default:
		return printObject(o.env.Out, o.output.format, devices.NewPodList(list))
	}
}
