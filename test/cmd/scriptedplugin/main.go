// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scriptedplugin is a device plugin for the kubelet, or for a program that serves the
// kubelet's directory, that does what a script says:
//
//	scriptedplugin [-directory=DIRECTORY] NAME RESOURCE [SCRIPT]
//
// Package scriptedplugin has the language of scripts. The plugin writes a line for each line of the
// script, and goes on until it gets a signal. Without a file, the script is read from standard
// input, and the plugin ends with that: so another program can say one line, and see what came of
// it, before it says the next.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubedevice/kubedevice/test/scriptedplugin"
)

func main() {
	directory := flag.String("directory", ".", "the directory in which plugins register")
	flag.Parse()
	if flag.NArg() < 2 || flag.NArg() > 3 {
		fmt.Fprintln(os.Stderr, "usage: scriptedplugin [-directory=DIRECTORY] NAME RESOURCE [SCRIPT]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *directory, flag.Arg(0), flag.Arg(1), flag.Arg(2)); err != nil {
		fmt.Fprintln(os.Stderr, "scriptedplugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, directory, name, resource, script string) error {
	p := scriptedplugin.New(scriptedplugin.Options{Name: name, Resource: resource, Directory: directory})
	defer p.Stop()
	if script == "" {
		return p.Play(ctx, os.Stdin, os.Stdout)
	}
	file, err := os.Open(script)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	if err := p.Play(ctx, file, os.Stdout); err != nil {
		return fmt.Errorf("%s: %w", script, err)
	}
	<-ctx.Done()
	return nil
}
