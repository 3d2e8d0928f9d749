// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"

	"github.com/spf13/cobra"
)

// selection is what all commands are given: objects by name or by label, and a form of output.
type selection struct {
	output   output
	names    []string
	selector string
}

// addFlags adds the flags for these formats, and kubectl's flag -l.
func (s *selection) addFlags(command *cobra.Command, formats ...string) {
	s.output.addFlags(command, formats...)
	command.Flags().StringVarP(&s.selector, "selector", "l", "",
		"Selector (label query) to filter on, supports '=', '==', '!=', 'in', 'notin' (e.g. -l "+
			"key1=value1,key2=value2).")
}

// take takes the command's arguments, which are names. An error says that they do not go with the
// flags.
func (s *selection) take(command *cobra.Command, names []string) error {
	s.names = names
	if err := s.output.check(command); err != nil {
		return err
	}
	if s.selector != "" && len(names) > 0 {
		return &usageError{errors.New("name cannot be provided when a selector is specified"), command.CommandPath()}
	}
	return nil
}
