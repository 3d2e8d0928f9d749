// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/pkg/kubectl/bundle"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// reportOptions are the arguments of kubectl device report.
type reportOptions struct {
	env    *environment
	file   string
	nodes  []string
	since  time.Duration
	noLogs bool
}

func reportCommand(env *environment) *cobra.Command {
	o := &reportOptions{env: env}
	command := &cobra.Command{
		Use:   "report",
		Short: "Write what support needs to know into a file",
		Long: `Write what support needs to know into a compressed tar file: versions, nodes, pods that have devices
or wait for some, events, admission policies, leases, and metrics and logs of KubeDevice's programs,
where they run in pods.

The file has no Secrets, no ConfigMaps, and no environment, arguments and volumes of pods. It has logs,
metrics and the messages of events as they are: read them before you pass the file on.

The file index.txt and a warning name each part that the command cannot read, and why. They also name
a scheduler that shares a node with device pods: a process that breaks out of one has its key.`,
		Example: `  # A report about the whole cluster, with events and logs of the last hour
  kubectl device report

  # A report about two nodes and the pods on them, with events and logs of a day
  kubectl device report --node gpu-7,gpu-8 --since 24h

  # A report without logs, into a certain file
  kubectl device report --no-logs -o report.tar.gz`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			if o.since <= 0 {
				return &usageError{errors.New("--since must be greater than 0"), command.CommandPath()}
			}
			return o.run(command.Context())
		},
	}
	command.Flags().StringVarP(&o.file, "output", "o", "",
		"File to write, in place of one that is there. The default is kubedevice-report-TIME.tar.gz.")
	command.Flags().StringSliceVar(&o.nodes, "node", nil,
		"Node to report about, with its pods. The pods without a node are always in the report. May be repeated. The "+
			"default is all nodes.")
	command.Flags().DurationVar(&o.since, "since", time.Hour,
		"Only events and lines of logs newer than a relative duration like 5s, 2m, or 3h.")
	command.Flags().BoolVar(&o.noLogs, "no-logs", false, "Leave logs out.")
	_ = command.RegisterFlagCompletionFunc("node", completeNodes(env)) // the flag is there
	return command
}

func (o *reportOptions) run(ctx context.Context) error {
	clients, err := o.env.clients()
	if err != nil {
		return err
	}
	slices.Sort(o.nodes)
	o.nodes = slices.Compact(o.nodes)
	now := o.env.now()
	file := o.file
	if file == "" {
		file = bundle.Name(now) + ".tar.gz"
	}
	findings, missing, err := bundle.Write(ctx, file, clients, bundle.Options{
		Nodes: o.nodes, Since: o.since, NoLogs: o.noLogs, PageSize: o.env.pageSize, Now: now,
		Client: clientVersion(),
		Tables: bundle.Tables{Nodes: o.printNodes, Pods: o.printPods, Top: o.printTop},
	})
	if err != nil {
		return err
	}
	for _, finding := range findings {
		fmt.Fprintf(o.env.ErrOut, "Warning: %s\n", finding)
	}
	for _, m := range missing {
		fmt.Fprintf(o.env.ErrOut, "Warning: not in the report: %s: %s\n", m.What, m.Why)
	}
	_, err = fmt.Fprintln(o.env.Out, file)
	return err
}

// The tables of a report are those of the other commands, with -o wide.

func (o *reportOptions) printNodes(to io.Writer, nodes []*corev1.Node, pods []*corev1.Pod) error {
	env := o.printing(to)
	return newNodesTable(env, &output{format: wide}).write(o.withPods(nodes, pods))
}

func (o *reportOptions) printTop(to io.Writer, nodes []*corev1.Node, pods []*corev1.Pod) error {
	top := &topOptions{env: o.printing(to), selection: selection{output: output{format: wide}}}
	return top.write(o.withPods(nodes, pods))
}

func (o *reportOptions) printPods(to io.Writer, pods []*corev1.Pod) error {
	options := &podsOptions{
		env: o.printing(to), allNamespaces: true, selection: selection{output: output{format: wide}},
	}
	var list []*devices.Pod
	for _, pod := range pods {
		if p := devices.NewPod(pod); options.shown(p) {
			list = append(list, p)
		}
	}
	return options.print(list, corev1.NamespaceAll)
}

// printing returns the environment of a command that prints into a file.
func (o *reportOptions) printing(to io.Writer) *environment {
	env := &environment{now: o.env.now}
	env.Out, env.ErrOut = to, to
	return env
}

// withPods returns the nodes that have devices, or were named, with the pods on them.
func (o *reportOptions) withPods(nodes []*corev1.Node, pods []*corev1.Pod) []*devices.Node {
	podsByNode := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if phase := pod.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			podsByNode[pod.Spec.NodeName] = append(podsByNode[pod.Spec.NodeName], pod)
		}
	}
	var list []*devices.Node
	for _, node := range nodes {
		if len(o.nodes) > 0 || devices.MayHaveDevices(node) {
			list = append(list, devices.NewNode(node, podsByNode[node.Name], o.env.now()))
		}
	}
	return list
}

// newClients returns what a report is read with.
func newClients(config *rest.Config) (clients bundle.Clients, err error) {
	var failed [4]error
	clients.Core, failed[0] = corev1client.NewForConfig(config)
	clients.Coordination, failed[1] = coordinationclient.NewForConfig(config)
	clients.Admission, failed[2] = admissionclient.NewForConfig(config)
	clients.Version, failed[3] = discovery.NewDiscoveryClientForConfig(config)
	return clients, errors.Join(failed[:]...)
}

// clientVersion is the version of this program.
func clientVersion() string { return version.Get().GitVersion }
