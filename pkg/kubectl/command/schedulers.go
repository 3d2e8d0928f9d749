// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/pkg/kubectl/scheduler"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// schedulersOptions are the arguments of kubectl device schedulers.
type schedulersOptions struct {
	env    *environment
	output output
	url    string
	raw    string
}

func schedulersCommand(env *environment) *cobra.Command {
	o := &schedulersOptions{env: env}
	command := &cobra.Command{
		Use:   "schedulers",
		Short: "Show the schedulers, which of them leads, and whether they answer",
		Long: `Show KubeDevice's schedulers: which of them leads, its version, where it answers, and whether it
answers you. With --raw, print an answer of one of them: of the leader, if the command reaches it.

The command reaches a scheduler through a port-forward to its pod, with your own credentials. It sends
them only to a server with the key that the scheduler publishes in namespace kubedevice-schedulers.`,
		Example: `  # The schedulers
  kubectl device schedulers

  # What the scheduler knows of a node, and why a pod waits
  kubectl device schedulers --raw 'nodes?name=node-1'
  kubectl device schedulers --raw 'pods?namespace=default&name=trainer'

  # What it answers, in OpenAPI 3
  kubectl device schedulers --raw openapi.json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.output.check(command); err != nil {
				return err
			}
			if o.raw != "" {
				if o.output.format != "" {
					return &usageError{errors.New("--raw and --output exclude each other"), command.CommandPath()}
				}
				return o.printRaw(command.Context())
			}
			return o.run(command.Context())
		},
	}
	o.output.addFlags(command, asJSON, asYAML, asNames, wide)
	addSchedulerFlag(command, &o.url)
	command.Flags().StringVar(&o.raw, "raw", "", "Path to read from a scheduler, such as nodes or pods, with a query.")
	return command
}

func (o *schedulersOptions) printRaw(ctx context.Context) error {
	client, err := o.env.scheduler(ctx, o.url)
	if err != nil {
		return err
	}
	defer client.Close()
	path := o.raw
	if !strings.HasPrefix(path, "/") {
		path = schedulerapi.Prefix + path
	}
	var text []byte
	if err := client.Query(ctx, http.MethodGet, path, nil, &text); err != nil {
		return err
	}
	_, err = o.env.Out.Write(text)
	return err
}

// scheduler connects to a scheduler. The caller closes the client.
func (e *environment) scheduler(ctx context.Context, url string) (*scheduler.Client, error) {
	options, err := e.schedulers()
	if err != nil {
		return nil, err
	}
	options.URL = url
	return scheduler.Connect(ctx, options)
}

// connectScheduler is scheduler for questions about placement.
func (e *environment) connectScheduler(ctx context.Context, url string) (to querier, disconnect func(), err error) {
	client, err := e.scheduler(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	return client, client.Close, nil
}

func (o *schedulersOptions) run(ctx context.Context) error {
	list, err := o.list(ctx)
	if len(list) == 0 {
		return err
	}
	switch {
	case o.output.format == asNames:
		name := func(s *devices.Scheduler) string { return s.Name }
		return errors.Join(err, printNames(o.env.Out, "scheduler/", list, name))
	case o.output.table():
		return errors.Join(err, o.print(list))
	default:
		object := &devices.SchedulerList{TypeMeta: devices.TypeMeta("SchedulerList"), Items: list}
		return errors.Join(err, printObject(o.env.Out, o.output.format, object))
	}
}

// list returns the schedulers, and connects to each if more is wanted than their names.
func (o *schedulersOptions) list(ctx context.Context) ([]*devices.Scheduler, error) {
	if o.url != "" {
		client, err := o.env.scheduler(ctx, o.url)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return []*devices.Scheduler{reached(client)}, nil
	}
	options, err := o.env.schedulers()
	if err != nil {
		return nil, err
	}
	found, err := scheduler.Find(ctx, options.Leases, options.Now())
	if len(found) == 0 {
		return nil, cmp.Or(err, scheduler.ErrNone)
	}
	var list []*devices.Scheduler
	for _, instance := range found {
		shown := published(instance)
		if o.output.format != asNames {
			shown = connectAndShow(ctx, options, instance)
		}
		list = append(list, shown)
	}
	return list, err
}

// connectAndShow returns what a scheduler says of itself, or what it published and why it does not
// answer.
func connectAndShow(ctx context.Context, options scheduler.Options, instance scheduler.Instance) *devices.Scheduler {
	client, err := scheduler.Dial(ctx, options, instance)
	if err == nil {
		defer client.Close()
		return reached(client)
	}
	shown := published(instance)
	shown.Problem = err.Error()
	if instance.Expired {
		shown.Problem = fmt.Sprintf("it has ended, or does not reach the API server: its lease was last renewed at %s",
			instance.Renewed.UTC().Format(time.RFC3339))
	}
	return shown
}

// published is what is known of a scheduler that was not reached.
func published(i scheduler.Instance) *devices.Scheduler {
	shown := &devices.Scheduler{
		TypeMeta: devices.TypeMeta("Scheduler"), Name: i.Name, Leads: i.Leads && !i.Expired, Version: i.Version,
		Host: i.Host, BindAddress: i.BindAddress, Port: i.Port, PublicKey: i.PublicKey, Renewed: i.Renewed,
	}
	if i.Pod != "" {
		shown.Pod = i.PodNamespace + "/" + i.Pod
	}
	return shown
}

// reached is what a scheduler says of itself.
func reached(client *scheduler.Client) *devices.Scheduler {
	shown := published(client.Instance)
	shown.Leads, shown.Version = client.Server.Leads, client.Server.Version
	shown.CompleteSince = client.Server.CompleteSince
	return shown
}

func (o *schedulersOptions) print(list []*devices.Scheduler) error {
	header := []string{"NAME", "LEADS", "VERSION", "HOST", "ADDRESS", "POD", "ANSWERS"}
	if o.output.format == wide {
		header = []string{"NAME", "LEADS", "VERSION", "HOST", "ADDRESS", "POD", "PUBLIC KEY", "ANSWERS"}
	}
	var rows []columns.Row
	for _, s := range list {
		row := columns.Row{
			columns.Text(s.Name), columns.Text(yesOrNo(s.Leads)), columns.Text(s.Version), columns.Text(s.Host),
			columns.Text(net.JoinHostPort(s.BindAddress, strconv.Itoa(s.Port))), columns.Text(s.Pod),
		}
		if o.output.format == wide {
			row = append(row, columns.Text(s.PublicKey))
		}
		answers := columns.Cell{Text: "yes", Style: columns.Green}
		if s.Problem != "" {
			answers = columns.Text(fmt.Sprintf("no: %s", s.Problem))
			answers.Style = columns.Red
		}
		rows = append(rows, append(row, answers))
	}
	return o.output.writer(o.env, header...).Write(rows)
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
