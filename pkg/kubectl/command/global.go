// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
)

// usageTemplate is cobra's, without the flags that all commands have: as with kubectl, the command
// options lists these.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Available Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasParent}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more information about a command.{{end}}

Use "{{.Root.DisplayName}} options" for the flags that all commands have, such as --context and --namespace.
`

// optionsCommand lists the flags that all commands have.
func optionsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that all commands have",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(env.Out, "All commands have these flags:\n\n%s",
				command.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// versionCommand says which version this program is.
func versionCommand(env *environment) *cobra.Command {
	var out output
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: `Print the version of this program. "kubectl device schedulers" has those of the schedulers, and
"kubectl device report" those of the nodes.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := out.check(command); err != nil {
				return err
			}
			own := version.Get()
			if out.format != "" {
				return printObject(env.Out, out.format, own)
			}
			_, err := fmt.Fprintf(env.Out, "KubeDevice %s (%s, %s)\n", strings.TrimSpace(own.GitVersion), own.GoVersion,
				own.Platform)
			return err
		},
	}
	out.addFormat(command, asJSON, asYAML)
	return command
}
