// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
)

// The forms of output. Without one it is a table.
const (
	wide    = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
	asNames = "name"
)

// output is how results are printed.
type output struct {
	format    string
	noHeaders bool
	formats   []string // that the command has
}

// addFlags adds the flags of a command that prints tables.
func (o *output) addFlags(command *cobra.Command, formats ...string) {
	o.addFormat(command, formats...)
	command.Flags().BoolVar(&o.noHeaders, "no-headers", false,
		"When using the default or the wide output format, don't print headers.")
}

// addFormat adds the flag -o.
func (o *output) addFormat(command *cobra.Command, formats ...string) {
	o.formats = formats
	command.Flags().StringVarP(&o.format, "output", "o", "",
		"Output format. One of: ("+strings.Join(formats, ", ")+").")
	completions := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	_ = command.RegisterFlagCompletionFunc("output", completions) // the flag is there
}

// check returns an error for a format that the command has not.
func (o *output) check(command *cobra.Command) error {
	if o.format != "" && !slices.Contains(o.formats, o.format) {
		return &usageError{
			fmt.Errorf("unable to match a printer suitable for the output format %q, allowed formats are: %s",
				o.format, strings.Join(o.formats, ",")),
			command.CommandPath(),
		}
	}
	return nil
}

// table reports whether the output is a table.
func (o *output) table() bool { return o.format == "" || o.format == wide }

// writer returns the writer of a table with these columns.
func (o *output) writer(env *environment, header ...string) *columns.Writer {
	w := &columns.Writer{Out: env.Out, Header: header, Color: env.terminal.Color, Width: env.terminal.Width}
	if o.noHeaders {
		w.Header = nil
	}
	if o.format == wide {
		w.Width = 0
	}
	return w
}

// printObject prints an object of package devices as JSON or YAML.
func printObject(to io.Writer, format string, object any) error {
	text, err := json.MarshalIndent(object, "", "    ")
	if err != nil {
		return err
	}
	if format == asYAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		text = append([]byte("---\n"), text...)
	} else {
		text = append(text, '\n')
	}
	_, err = to.Write(text)
	return err
}
