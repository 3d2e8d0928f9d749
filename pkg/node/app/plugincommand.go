// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

// pluginCommand is the parent of the commands for plugin files.
func pluginCommand() *cobra.Command {
	command := &cobra.Command{Use: "plugin", Short: "Check plugin files", Args: cobra.NoArgs}
	command.AddCommand(&cobra.Command{
		Use:   "check FILE...",
		Short: "Say whether plugin files would load, and if not, why",
		Long: "Say for each file, in one line, whether this program would load it as a plugin. The files are tried " +
			"in a process of their own.\n" +
			"Fails if any of them would not load.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			refused := 0
			for _, file := range files {
				line, err := pluginload.Check(command.Context(), file)
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
	})
	return command
}
