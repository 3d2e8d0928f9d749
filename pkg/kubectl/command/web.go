// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/kubectl/web"
)

// webOptions are the arguments of kubectl device web.
type webOptions struct {
	env     *environment
	page    func() (fs.FS, error)
	address string
	open    bool
	url     string // of the scheduler
}

func webCommand(env *environment) *cobra.Command {
	o := &webOptions{env: env, page: web.Page}
	command := &cobra.Command{
		Use:   "web",
		Short: "Show a map of the devices in the browser",
		Long: `Show a map of the devices in the browser: each node with its devices in their groups, what is free,
used, shared and unhealthy, and the pods that wait for devices. It follows the cluster until you
interrupt the command. The scheduler says why a pod waits, and where it would go after changes.

This command serves the page with your own rights, on an address that no other machine reaches. Every
user with the printed address sees the map: the address has a key in it.`,
		Example: `  # The map of the cluster, in the browser
  kubectl device web

  # Its address alone, with a port that is always the same
  kubectl device web --open=false --address 127.0.0.1:8765`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	command.Flags().StringVar(&o.address, "address", "127.0.0.1:0",
		"Address and port of this machine that the page is served on. Port 0 is any free one.")
	command.Flags().BoolVar(&o.open, "open", true, "Open the page in the browser.")
	addSchedulerFlag(command, &o.url)
	return command
}

func (o *webOptions) run(ctx context.Context) error {
	page, err := o.page()
	if err != nil {
		return err
	}
	reader, _, err := o.env.reader()
	if err != nil {
		return err
	}
	server, err := web.Listen(o.address, page, reader, o.connect)
	if err != nil {
		return err
	}
	server.Name(o.env.clusterName())
	fmt.Fprintln(o.env.Out, server.URL())
	fmt.Fprintln(o.env.ErrOut, "The map is at this address until you press Ctrl-C.")
	if o.open {
		if err := o.env.browse(ctx, server.OnceURL()); err != nil {
			fmt.Fprintf(o.env.ErrOut, "Warning: open the address yourself: %v\n", err)
		}
	}
	return server.Run(ctx)
}

// connect connects to the scheduler that is meant.
func (o *webOptions) connect(ctx context.Context) (web.Scheduler, func(), error) {
	return o.env.placement(ctx, o.url)
}

// browse shows an address in the user's browser. It returns before the browser has it.
func browse(ctx context.Context, url string) error {
	var command *exec.Cmd
	switch {
	case runtime.GOOS == "windows":
		command = exec.CommandContext(ctx, "rundll32", "url.dll,FileProtocolHandler", url)
	case runtime.GOOS == "darwin":
		command = exec.CommandContext(ctx, "open", url)
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return errors.New("there is no screen here")
	default:
		command = exec.CommandContext(ctx, "xdg-open", url)
	}
	if err := command.Start(); err != nil {
		return err
	}
	go command.Wait() //nolint:errcheck // it ends with the command, or before
	return nil
}
