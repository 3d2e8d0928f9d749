// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// grantsCommand prints the checkpoint of grants. It reads the file, so it works while kubecri runs
// and while it doesn't.
func grantsCommand() *cobra.Command {
	directory, format, configFile := NewOptions().StateDir, "table", ""
	command := &cobra.Command{
		Use:   "grants",
		Short: "Print which pod holds which device of this node",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := configure(command.Flags(), configFile); err != nil {
				return err
			}
			list, err := grants.Read(filepath.Join(directory, grantsFile))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			switch format {
			case "json":
				return printJSON(command.OutOrStdout(), list)
			case "table":
				return printTable(command.OutOrStdout(), list)
			default:
				return fmt.Errorf("--output %q: want table or json", format)
			}
		},
	}
	command.Flags().StringVar(&configFile, configurationFlag, configFile,
		"kubecri's configuration file; the flags win over it")
	command.Flags().StringVar(&directory, "state-dir", directory, "kubecri's directory of that name")
	command.Flags().StringVarP(&format, "output", "o", format, "table or json")
	return command
}

func printJSON(out io.Writer, list []grants.Allocation) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if list == nil {
		list = []grants.Allocation{} // an empty list, not null
	}
	return encoder.Encode(list)
}

func printTable(out io.Writer, list []grants.Allocation) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tPOD\tCONTAINER\tRESOURCE\tQUANTITY\tSINCE\tBY")
	for _, g := range list {
		origin := "scheduler"
		if g.Adopted {
			origin = "kubelet"
		}
		for _, containers := range []map[string]types.ContainerInfo{g.PodInfo.InitContainers,
			g.PodInfo.RunningContainers} {
			for _, name := range slices.Sorted(maps.Keys(containers)) {
				container := containers[name]
				quantities := types.ResourceList{}
				for request, resource := range container.AllocateFrom {
					quantities[resource] += container.DevRequests[request]
				}
				for _, resource := range slices.Sorted(maps.Keys(quantities)) {
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", g.Namespace, g.Name, name, resource,
						quantities[resource], g.Since.Format(time.RFC3339), origin)
				}
			}
		}
	}
	return table.Flush()
}
