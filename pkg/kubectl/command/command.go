// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is the plugin of kubectl that shows devices: kubectl device nodes, pods and top,
// and web, a map in the browser; and finds mistakes in manifests: lint. It needs nothing in the
// cluster: it reads nodes and pods from the API server, with the user's own kubeconfig and rights.
// What only KubeDevice's schedulers know, these commands query: schedulers, why, fit and whatif.
// What other parts of KubeDevice do for administrators is here by the same name: enrol, leave and
// seal-keys. What it shows is put together by packages devices and lint.
package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/kubectl/bundle"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/scheduler"
	"github.com/kubedevice/kubedevice/pkg/seal/keycommand"
)

// Main runs the command with the arguments of the process, and returns its exit status, which is
// that of kubectl: 0, or 1 after any error. Commands that answer a question with it, or that run
// another program, have their own.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command, env := newProcess()
	return run(ctx, command, env)
}

// NewCommand returns the command of the process, with all flags.
func NewCommand() *cobra.Command {
	command, _ := newProcess()
	return command
}

// newProcess returns the command with the streams, the terminal and the kubeconfig of the process.
func newProcess() (*cobra.Command, *environment) {
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag()
	env := &environment{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		terminal:  columns.TerminalOf(os.Stdout, os.Getenv),
		browse:    browse,
		now:       time.Now,
	}
	env.client = func() (corev1client.CoreV1Interface, string, error) { return connect(flags, env) }
	env.clusterName = func() string { return clusterName(flags) }
	env.clients = func() (bundle.Clients, error) {
		config, err := configure(flags, env)
		if err != nil {
			return bundle.Clients{}, err
		}
		return newClients(config)
	}
	env.batch = func() (batchclient.BatchV1Interface, error) {
		config, err := configure(flags, env)
		if err != nil {
			return nil, err
		}
		return batchclient.NewForConfig(config)
	}
	env.resources = func() (resourceclient.ResourceV1Interface, error) {
		config, err := configure(flags, env)
		if err != nil {
			return nil, err
		}
		return resourceclient.NewForConfig(config)
	}
	env.schedulers = func() (scheduler.Options, error) {
		config, err := configure(flags, env)
		if err != nil {
			return scheduler.Options{}, err
		}
		leases, err := coordinationclient.NewForConfig(config)
		return scheduler.Options{Config: config, Leases: leases, Now: env.now}, err
	}
	env.placement = env.connectScheduler
	command := newCommand(env)
	flags.AddFlags(command.PersistentFlags())
	addVerbosity(command)
	return command, env
}

// run runs a command and returns the exit status.
func run(ctx context.Context, command *cobra.Command, env *environment) int {
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	found := &exitStatus{1, err}
	errors.As(err, &found)
	interrupted := errors.Is(err, context.Canceled) && ctx.Err() != nil // who did it knows
	if found.err != nil && !interrupted {
		printError(env.ErrOut, found.err)
	}
	return found.status
}

// connect returns the client that the flags and the kubeconfig describe.
func connect(flags *genericclioptions.ConfigFlags, env *environment) (corev1client.CoreV1Interface, string, error) {
	config, err := configure(flags, env)
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, "", err
	}
	return client, namespace, nil
}

// clusterName returns the name of the cluster that the flags and the kubeconfig mean, or "".
func clusterName(flags *genericclioptions.ConfigFlags) string {
	if *flags.ClusterName != "" {
		return *flags.ClusterName
	}
	config, err := flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // connecting says what is wrong with it
	}
	if context := config.Contexts[cmp.Or(*flags.Context, config.CurrentContext)]; context != nil {
		return context.Cluster
	}
	return ""
}

// configure returns how the API server is reached.
func configure(flags *genericclioptions.ConfigFlags, env *environment) (*rest.Config, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.WarningHandler = rest.NewWarningWriter(env.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// addVerbosity adds kubectl's flag -v.
func addVerbosity(command *cobra.Command) {
	all := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(all)
	command.PersistentFlags().AddGoFlag(all.Lookup("v"))
}

// newCommand returns kubectl device. Each command below it has a file of its own.
func newCommand(env *environment) *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-device",
		Short: "Show the devices of a cluster, who holds them, and who waits for them",
		Long: `Show the devices of a cluster, who holds them, and who waits for them.

The commands read nodes and pods with your own kubeconfig. They show what the API server has and
verify nothing: "Granted" marks what a node reports, "Bound" what the scheduler has decided alone.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl device"},
		SilenceErrors: true,
		SilenceUsage:  true,
		// kubectl calls kubectl_complete-device for completion; see docs/use/kubectl-device.md.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	command.SetUsageTemplate(usageTemplate)
	command.SetIn(env.In)
	command.SetOut(env.Out)
	command.SetErr(env.ErrOut)
	command.SetFlagErrorFunc(func(failed *cobra.Command, err error) error {
		return &usageError{err, failed.CommandPath()}
	})
	command.PersistentFlags().Int64Var(&env.pageSize, "chunk-size", defaultPageSize,
		"Return large lists in chunks of so many objects rather than all at once. Pass 0 to disable.")
	command.AddCommand(nodesCommand(env), podsCommand(env), topCommand(env), claimsCommand(env), driversCommand(env),
		lintCommand(env), reportCommand(env), schedulersCommand(env), whyCommand(env), fitCommand(env),
		whatifCommand(env), webCommand(env), cordonCommand(env), uncordonCommand(env), taintCommand(env),
		enrolCommand(env), leaveCommand(env), keycommand.New(env.core), optionsCommand(env), versionCommand(env))
	return command
}
