// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/node/conformance"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

// pluginCommand is the parent of the commands for plugin files.
func pluginCommand() *cobra.Command {
	command := &cobra.Command{Use: "plugin", Short: "Check and test plugins", Args: cobra.NoArgs}
	command.AddCommand(pluginCheckCommand(), pluginTestCommand())
	return command
}

func pluginCheckCommand() *cobra.Command {
	var checker pluginload.Checker
	command := &cobra.Command{
		Use:   "check (FILE | DIRECTORY)...",
		Short: "Say whether plugin files would load, and if not, why",
		Long: "Say for each file, in one line, whether this program would load it as a plugin, from where it is and " +
			"after the files before it, of which it may be a second copy. Of a directory, all plugin files are " +
			"meant, in the order in which the programs load them. The files are tried in a process of their own.\n" +
			"Fails if any of them would not load.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, paths []string) error {
			files, err := pluginFiles(paths)
			if err != nil {
				return err
			}
			refused := 0
			for _, file := range files {
				line, err := checker.Check(command.Context(), file)
				if err != nil {
					refused++
					line = err.Error()
				}
				fmt.Fprintln(command.OutOrStdout(), line)
			}
			if refused > 0 {
				return fmt.Errorf("%d of %d files would not load", refused, len(files))
			}
			return nil
		},
	}
	command.Flags().BoolVar(&checker.AllowWritable, pluginload.AllowWritableFlag, false,
		"check as for programs that are started with this flag: files that users other than root may change would load")
	return command
}

// pluginFiles returns the files that are meant: of a directory those that are plugins.
func pluginFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			files = append(files, path) // the check says what is wrong with it
			continue
		}
		found, err := pluginload.Files(path)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no plugin files (*.so)", path)
		}
		files = append(files, found...)
	}
	return files, nil
}

// socketScheme begins the argument that names a kubelet device plugin.
const socketScheme = "unix://"

func pluginTestCommand() *cobra.Command {
	format, options := "text", conformance.Options{Limits: conformance.DefaultLimits()}
	var known []string
	command := &cobra.Command{
		Use:   "test FILE... | unix:///PATH/PLUGIN.SOCK",
		Short: "Test whether plugins do what is expected of them",
		Long: "Test a vendor's plugins, and print a line for each check: ok, FAILED with the reason and what to " +
			"do, or not applicable. " + documents.URL + "vendors/plugin-checks.md explains the checks.\n\n" +
			"Give a device plugin, a scheduler plugin, or both halves of a pair; they are distinguished by what they " +
			"export. The device plugin runs for real: run the test on a machine with the devices, as the user that " +
			"kubecri runs as, and not next to a kubecri that uses the same devices. The files run in processes of " +
			"their own, so one that panics, hangs or ends its process is reported.\n\n" +
			"Or give the socket of a kubelet device plugin, which runs and which no kubelet uses: a plugin feeds one " +
			"client at a time.\n\n" +
			"Fails if any check failed.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, plugins []string) error {
			if format != "text" && format != "json" {
				return fmt.Errorf("--output %q: want text or json", format)
			}
			accepted := map[string]string{}
			for _, text := range known {
				check, reason, ok := strings.Cut(text, "=")
				if !ok || reason == "" {
					return fmt.Errorf("--known %q: want CHECK=REASON", text)
				}
				accepted[check] = reason
			}
			ctx, stop := untilSignalled(command.Context(), os.Stderr)
			defer stop()
			report, err := testPlugins(ctx, plugins, options)
			if err == nil {
				err = report.Accept(accepted)
			}
			if err != nil {
				return err
			}
			write := report.WriteText
			if format == "json" {
				write = report.WriteJSON
			}
			if err := write(command.OutOrStdout()); err != nil {
				return err
			}
			if failed := report.Count(conformance.Failed); failed > 0 {
				return fmt.Errorf("%d of %d checks failed", failed, len(report.Results))
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&format, "output", "o", format, "text or json")
	flags.BoolVar(&options.NoDevices, "no-devices", options.NoDevices,
		"expect none of the plugin's devices on this machine: what needs one is not applicable")
	flags.StringVar(&options.Break, "break", options.Break,
		"a shell command that makes one of the devices unhealthy, for the check of health")
	flags.StringVar(&options.Repair, "mend", options.Repair,
		"a shell command that makes it healthy again, and succeeds for one that is healthy")
	flags.StringArrayVar(&known, "known", known,
		"CHECK=REASON: expect that the check fails, and report it as known; may be given several times")
	flags.StringVar(&options.Restart, "restart", options.Restart,
		"a shell command that restarts a kubelet device plugin, for the check that its devices keep their IDs")
	return command
}

func testPlugins(ctx context.Context, plugins []string, options conformance.Options) (*conformance.Report, error) {
	socket, ok := strings.CutPrefix(plugins[0], socketScheme)
	if !ok {
		return conformance.Files(ctx, plugins, options)
	}
	if len(plugins) > 1 {
		return nil, fmt.Errorf("%d arguments: test one socket at a time, and no file with it", len(plugins))
	}
	return conformance.Socket(ctx, socket, options)
}
