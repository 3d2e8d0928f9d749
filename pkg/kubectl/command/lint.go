// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/lint"
)

// Exit statuses of lint, in the manner of kubectl diff.
const (
	lintFound  = 1
	lintFailed = 2
)

// lintOptions are the arguments of kubectl device lint.
type lintOptions struct {
	env       *environment
	output    output
	files     []string
	recursive bool
	offline   bool
	strict    bool
}

func lintCommand(env *environment) *cobra.Command {
	o := &lintOptions{env: env}
	command := &cobra.Command{
		Use:   "lint -f FILE...",
		Short: "Find mistakes in what manifests request of devices",
		Long: `Find mistakes in what manifests request of devices, in the annotation KubeDevice/DeviceInfo and in
limits, of pods and of all objects with a pod template.

Each finding is a line with file, line and column. The command compares manifests with the nodes of the
cluster, unless there is none (--offline): a resource that no node has is a warning.

The exit status is 0 without findings or with warnings only, 1 with errors (with --strict, warnings
too), and 2 if the command cannot read something or the arguments are wrong.`,
		Example: `  # A manifest, against the cluster of the current context
  kubectl device lint -f pod.yaml

  # All manifests of a directory, without a cluster, as a step of CI
  kubectl device lint -R -f deploy/ --offline --strict

  # What a chart or an overlay renders
  kubectl kustomize overlays/prod | kubectl device lint -f -`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return lintUsage(command, fmt.Errorf("unexpected argument %q: name files with -f", args[0]))
			case len(o.files) == 0:
				return lintUsage(command, errors.New("must specify -f: a file, a directory, or - for standard input"))
			default:
				return nil
			}
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.output.check(command); err != nil {
				return &exitStatus{lintFailed, err}
			}
			return o.run(command.Context())
		},
	}
	command.SetFlagErrorFunc(lintUsage)
	o.output.addFormat(command, asJSON, asYAML)
	flags := command.Flags()
	flags.StringSliceVarP(&o.files, "filename", "f", nil,
		"Files or directories with manifests, or - for standard input. Of a directory, .json, .yaml and .yml files.")
	flags.BoolVarP(&o.recursive, "recursive", "R", false, "Process the directories used in -f, --filename recursively.")
	flags.BoolVar(&o.offline, "offline", false, "Do not compare manifests with a cluster.")
	flags.BoolVar(&o.strict, "strict", false, "If true, the exit status is 1 for warnings too.")
	return command
}

// lintUsage is a mistake in the arguments.
func lintUsage(command *cobra.Command, err error) error {
	return &exitStatus{lintFailed, &usageError{err, command.CommandPath()}}
}

func (o *lintOptions) run(ctx context.Context) error {
	var known *lint.Cluster
	var unread []error
	if !o.offline {
		var err error
		if known, err = o.readCluster(ctx); err != nil {
			unread = append(unread, fmt.Errorf("the nodes of the cluster: %w; --offline compares with none", err))
		}
	}
	var findings []lint.Finding
	for _, name := range o.files {
		files, err := o.expand(name)
		if err != nil {
			unread = append(unread, err)
		}
		for _, file := range files {
			found, err := o.lintFile(file, known)
			findings = append(findings, found...)
			if err != nil {
				unread = append(unread, err)
			}
		}
	}
	if err := o.print(findings); err != nil {
		unread = append(unread, err)
	}
	if len(unread) > 0 {
		return &exitStatus{lintFailed, errors.Join(unread...)}
	}
	if slices.ContainsFunc(findings, func(f lint.Finding) bool { return o.strict || f.Severity == lint.Error }) {
		return &exitStatus{status: lintFound}
	}
	return nil
}

func (o *lintOptions) readCluster(ctx context.Context) (*lint.Cluster, error) {
	reader, _, err := o.env.reader()
	if err != nil {
		return nil, err
	}
	nodes, err := reader.Nodes(ctx, cluster.Query{})
	if err != nil {
		return nil, err
	}
	return lint.NewCluster(nodes), nil
}

// stdin names standard input.
const stdin = "-"

// expand returns the files that an argument means, as kubectl's -f does. With an error it returns
// those found before.
func (o *lintOptions) expand(name string) (files []string, err error) {
	if name == stdin {
		return []string{name}, nil
	}
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != name && !o.recursive:
			return filepath.SkipDir
		case entry.IsDir():
		case path == name || slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

func (o *lintOptions) lintFile(name string, known *lint.Cluster) ([]lint.Finding, error) {
	var content []byte
	var err error
	if name == stdin {
		name = "<stdin>"
		content, err = io.ReadAll(o.env.In)
	} else {
		content, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	return lint.File(name, content, known)
}

func (o *lintOptions) print(findings []lint.Finding) error {
	if o.output.format != "" {
		return printObject(o.env.Out, o.output.format, lint.NewFindingList(findings))
	}
	for _, finding := range findings {
		if _, err := fmt.Fprintln(o.env.Out, finding); err != nil {
			return err
		}
	}
	return nil
}
