// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// goBuild is one executable to be built from Go sources.
type goBuild struct {
	module  string // the directory of the Go module, in the test module; "" for that itself
	pkg     string // the package
	output  string // the file to write, in the directory of the programs
	tags    string
	ldflags string // besides those that leave debug information out
	env     []string
}

func (b *builder) goBuild(ctx context.Context, g goBuild) error {
	return b.goBuildWith(ctx, g, "build")
}

// goTestBuild builds the tests of a package into an executable.
func (b *builder) goTestBuild(ctx context.Context, g goBuild) error {
	return b.goBuildWith(ctx, g, "test", "-c")
}

func (b *builder) goBuildWith(ctx context.Context, g goBuild, how ...string) error {
	b.report.count("packages") // as -v prints them
	arguments := append(how, "-v", "-trimpath", "-buildvcs=false", "-tags="+g.tags, "-ldflags=-s -w "+g.ldflags, "-o",
		b.output(g.output), g.pkg)
	_, err := b.goCommand(ctx, g.module, g.env, arguments...)
	return err
}

// goCommand runs the go command in a module and returns what it prints.
func (b *builder) goCommand(ctx context.Context, module string, env []string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = filepath.Join(b.source, module)
	command.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	return b.finish(command)
}

// command runs a program.
func (b *builder) command(ctx context.Context, name string, arguments ...string) error {
	return b.commandIn(ctx, b.dir, name, arguments...)
}

// commandIn runs a program in a directory.
func (b *builder) commandIn(ctx context.Context, directory, name string, arguments ...string) error {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = directory
	_, err := b.finish(command)
	return err
}

// commandOutput runs a program and returns what it prints.
func (b *builder) commandOutput(ctx context.Context, name string, arguments ...string) (string, error) {
	return b.finish(exec.CommandContext(ctx, name, arguments...))
}

func (b *builder) finish(command *exec.Cmd) (string, error) {
	var stdout bytes.Buffer
	command.Stdout, command.Stderr = &stdout, b.report
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, b.report.tail())
	}
	return stdout.String(), nil
}
