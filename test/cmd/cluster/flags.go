// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// pathValue is a flag with a file or directory, which it makes absolute; or with one of some words
// that stand for something else.
type pathValue struct {
	path  *string
	words []string
}

var _ pflag.Value = pathValue{}

func (v pathValue) Set(value string) (err error) {
	if slices.Contains(v.words, value) {
		*v.path = value
		return nil
	}
	*v.path, err = filepath.Abs(value)
	return err
}

func (v pathValue) String() string {
	if v.path == nil {
		return ""
	}
	return *v.path
}

func (v pathValue) Type() string { return "path" }

// pathsValue is a flag with files or directories, divided by commas or given several times.
type pathsValue struct{ paths *[]string }

var _ pflag.Value = pathsValue{}

func (v pathsValue) Set(value string) error {
	for path := range strings.SplitSeq(value, ",") {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		*v.paths = append(*v.paths, absolute)
	}
	return nil
}

func (v pathsValue) String() string {
	if v.paths == nil {
		return ""
	}
	return strings.Join(*v.paths, ",")
}

func (v pathsValue) Type() string { return "paths" }

func addDir(f *pflag.FlagSet, dir *string) {
	f.Var(pathValue{path: dir}, "dir",
		"the cluster's directory; clusters with different directories don't meet (default _output/cluster)")
}

// fromEnvironment sets each flag that the command line doesn't from its environment variable.
func fromEnvironment(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(flag *pflag.Flag) {
		name := "KUBEDEVICE_CLUSTER_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value, set := os.LookupEnv(name)
		if err != nil || flag.Changed || !set {
			return
		}
		if err = flags.Set(flag.Name, value); err != nil {
			err = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return err
}
