// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/agent"
)

const agentLong = `Keep this node enrolled while it has the labels of its group, and give it back when they go. The
DaemonSet of the chart runs this, in a privileged container with hostPID. It puts this program and its
plugins on the node, and runs kubecri there, outside the container, so that kubecri sees the paths and
devices that the container runtime sees.`

// Where the image has what is put on the node, and where the DaemonSet mounts what it is given.
const (
	agentProgram       = "/kubecri"
	agentConfiguration = "/etc/kubedevice/node/kubecri.yaml"
	agentCertificates  = "/etc/kubedevice/seals/certificates.pem"
)

// agentPlugins are the directories of plugins. The first one is filled by init containers of images
// of others.
var agentPlugins = []string{
	"/usr/local/KubeExt/others", "/usr/local/KubeExt/devices", "/usr/local/KubeExt/simulated",
}

// agentCommand keeps a node enrolled.
func agentCommand() *cobra.Command {
	var (
		mode                             = ModeCRI
		node, namespace, group, programs string
		selector                         map[string]string
		plugins, enrolArgs               []string
	)
	command := &cobra.Command{
		Use: "agent", Short: "Keep this node enrolled while it has certain labels", Long: agentLong, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if node == "" || namespace == "" || group == "" || programs == "" || len(selector) == 0 {
				return errors.New("--node, --namespace, --group, --programs and --selector are needed")
			}
			client, err := podClient()
			if err != nil {
				return err
			}
			host := &agent.Host{
				Programs: agent.Programs{
					Root: "/proc/1/root", Directory: programs, Program: agentProgram, PluginDirs: agentPlugins,
					Plugins: plugins, Configuration: agentConfiguration,
					Add: fmt.Sprintf("hostnameOverride: %q\n", node),
				},
				Self: agentProgram, Journal: journalPath, NRI: mode == ModeNRI,
			}
			if exists(agentCertificates) {
				host.Certificates = agentCertificates
			}
			host.EnrolFlags = []string{
				"--program=" + host.Path("kubecri"), "--group=" + group, "--owned-directory=" + programs,
				"--owned-directory=" + NewOptions().runDir,
			}
			if mode == ModeNRI {
				host.EnrolFlags = append(host.EnrolFlags, "--units=false")
			} else {
				host.EnrolFlags = append(append(host.EnrolFlags, "--schedulers-replaced"), enrolArgs...)
				host.LeaveFlags = leaveArgs(enrolArgs)
			}
			ctx, stop := untilSignalled(command.Context(), os.Stderr)
			defer stop()
			err = agent.New(agent.Options{
				Node: node, Selector: labels.SelectorFromSet(selector), Group: group, Namespace: namespace,
				Serial: mode == ModeCRI, Client: client, Machine: host,
			}).Run(klog.NewContext(ctx, klog.Background()))
			return errors.Join(err, host.Stop())
		},
	}
	flags := command.Flags()
	flags.Var(&mode, "mode", "cri puts kubecri between kubelet and runtime, nri makes it a plugin of the runtime")
	flags.StringVar(&node, "node", node, "the node's name")
	flags.StringVar(&namespace, "namespace", namespace, "namespace of the leases "+agent.LeaveLease+" and "+
		agent.EnrolmentLease)
	flags.StringVar(&group, "group", group, "name of the group of nodes")
	flags.StringToStringVar(&selector, "selector", selector, "label of the group's nodes, as key=value; may be "+
		"repeated")
	flags.StringVar(&programs, "programs", programs, "directory of the node for program, plugins and configuration")
	flags.StringSliceVar(&plugins, "plugin", plugins, "device plugin of an image, without .so; may be repeated")
	flags.StringArrayVar(&enrolArgs, "enrol-arg", enrolArgs, "argument for enrol and leave, with mode cri; may be "+
		"repeated")
	return command
}

// leaveArgs returns those of the arguments for enrol that leave knows, too.
func leaveArgs(args []string) []string {
	flags := leaveCommand().Flags()
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return flags.Lookup(name) == nil
	})
}

// onHostCommand runs a program on the machine.
func onHostCommand() *cobra.Command {
	return &cobra.Command{
		Use: "on-host -- PROGRAM [ARGUMENTS]", Short: "Become a program outside this container", Hidden: true,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return agent.Enter(args) },
	}
}

// podClient returns a client that acts as this pod's service account.
func podClient() (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("credentials of this pod: %w", err)
	}
	return kubernetes.NewForConfig(config)
}

// podCoreClient is podClient for the core API.
func podCoreClient() (corev1client.CoreV1Interface, error) {
	client, err := podClient()
	if err != nil {
		return nil, err
	}
	return client.CoreV1(), nil
}
