// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images is what "make images" runs: it makes the container images of KubeDevice, on
// packages of Debian, without Docker, without root and without a registry.
//
//	images compiler ARCHITECTURE DIRECTORY    prints a C compiler for another architecture
//	images write [flags]                      writes the images as OCI layouts
//	images plugin [flags]                     builds a plugin for a release, as an image
//	images start [flags]                      starts what an image of another architecture has
package main

import (
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "compiler":
		path, err := compiler(ctx, args[1], args[2])
		if err != nil {
			return fmt.Errorf("find a C compiler for %s: %w", args[1], err)
		}
		_, err = fmt.Fprintln(out, path)
		return err
	case len(args) > 0 && args[0] == "write":
		return runWrite(ctx, args[1:], out)
	case len(args) > 0 && args[0] == "plugin":
		return runPlugin(ctx, args[1:], out)
	case len(args) > 0 && args[0] == "start":
		return runStart(ctx, args[1:], out)
	}
	return errors.New("want: images compiler ARCHITECTURE DIRECTORY, or images write, plugin or start with flags")
}

// runWrite writes all images, and prints name and digest of each.
func runWrite(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("images write", flag.ContinueOnError)
	platforms := flags.String("platforms", "linux/amd64", "platforms, such as \"linux/amd64 linux/arm64\"")
	programs := flags.String("programs", "", "directory with a directory of programs and plugins for each architecture")
	work := flags.String("work", "", "directory for what is downloaded")
	to := flags.String("out", "", "directory for the images, one OCI layout each")
	licence := flags.String("licence", "", "file of the licence")
	version := flags.String("version", "", "version, which is the images' tag, too")
	revision := flags.String("revision", "", "revision of the sources")
	seconds := flags.Int64("created", 0, "time of the images and of all their files, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	release := release{version: *version, revision: *revision, created: time.Unix(*seconds, 0).UTC()}
	var contents []*content
	for _, platform := range strings.Fields(*platforms) {
		architecture, ok := strings.CutPrefix(platform, "linux/")
		if !ok || machines[architecture] == elf.EM_NONE {
			return fmt.Errorf("platform %q: there are images for linux/amd64 and linux/arm64", platform)
		}
		base, err := baseFiles(ctx, architecture, filepath.Join(*work, "debian-"+architecture))
		if err != nil {
			return fmt.Errorf("make the base for %s: %w", platform, err)
		}
		c, err := newContent(architecture, base, filepath.Join(*programs, architecture), *licence, release.created)
		if err != nil {
			return fmt.Errorf("read what is built for %s: %w", platform, err)
		}
		contents = append(contents, c)
	}
	for _, image := range images {
		digest, err := image.write(filepath.Join(*to, image.name), release, contents)
		if err != nil {
			return fmt.Errorf("write image %s: %w", image.name, err)
		}
		if _, err := fmt.Fprintf(out, "%s %s\n", digest, image.reference(release)); err != nil {
			return err
		}
	}
	return nil
}
