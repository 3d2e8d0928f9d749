// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command install is in images of plugins: it copies them from there to where a program finds them,
// as an init container. It needs no shell and no library.
//
//	/install -device DIRECTORY               copies the plugins of kubecri
//	/install -scheduler DIRECTORY            copies those of kube-scheduler
//	/install -scheduler DIRECTORY -link FILE puts a link to another plugin next to them; may be repeated
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// plugins is where the image has them.
const plugins = "/plugins"

func main() {
	if err := run(plugins, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func run(plugins string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	device := flags.String("device", "", "directory for the plugins of kubecri")
	scheduler := flags.String("scheduler", "", "directory for the plugins of kube-scheduler")
	var links []string
	flags.Func("link", "path of a plugin to which a link is put next to those of -scheduler", func(path string) error {
		links = append(links, path)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *device == "" && *scheduler == "" {
		return errors.New("want -device DIRECTORY or -scheduler DIRECTORY")
	}
	if len(links) > 0 && *scheduler == "" {
		return errors.New("-link is for -scheduler DIRECTORY")
	}
	for _, half := range []struct{ name, to string }{{"device", *device}, {"scheduler", *scheduler}} {
		if half.to == "" {
			continue
		}
		if err := installAll(filepath.Join(plugins, half.name), half.to, out); err != nil {
			return fmt.Errorf("%s: %w", half.name, err)
		}
	}
	for _, path := range links {
		link := filepath.Join(*scheduler, filepath.Base(path))
		if err := replace(link, func(temporary string) error { return os.Symlink(path, temporary) }); err != nil {
			return err
		}
		fmt.Fprintln(out, link, "->", path)
	}
	return nil
}

// installAll copies all plugins of a directory. Others than the owner may only read them, and the
// directory if it was not there: programs load nothing that others may write.
func installAll(from, to string, out io.Writer) error {
	found, err := filepath.Glob(filepath.Join(from, "*.so"))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("the image has no such plugin")
	}
	slices.Sort(found)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, path := range found {
		installed := filepath.Join(to, filepath.Base(path))
		if err := replace(installed, func(temporary string) error { return copyFile(path, temporary) }); err != nil {
			return err
		}
		fmt.Fprintln(out, installed)
	}
	return nil
}

// replace puts what is made in the place of a file, at once: a program that has the old one open
// keeps it.
func replace(path string, make func(temporary string) error) error {
	temporary := path + ".new"
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	if err := make(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // opened for reading
	copied, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, source)
	// Despite the umask.
	return errors.Join(err, copied.Chmod(0o644), copied.Sync(), copied.Close())
}
