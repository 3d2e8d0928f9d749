// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release is what "make release" runs: it makes the files of a release from what other
// targets have built, with bills of materials, checksums and, if there is a key, a signature. The
// same inputs make the same bytes.
//
//	release write [flags]                   writes the files
//	release verify -key FILE DIRECTORY      verifies signature and checksums of files
//	release push -key FILE -to REGISTRY DIRECTORY
//	                                        verifies them, and pushes images with their bills
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// passwordVariable has the password of a key that is encrypted. It is that of cosign.
const passwordVariable = "COSIGN_PASSWORD"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == "write":
		return runWrite(ctx, args[1:], out)
	case len(args) > 0 && args[0] == "verify":
		return runVerify(args[1:], out)
	case len(args) > 0 && args[0] == "push":
		return runPush(ctx, args[1:], out)
	}
	return errors.New("want: release write [flags], release verify -key FILE DIRECTORY, or release push -key FILE " +
		"-to REGISTRY DIRECTORY")
}

// runWrite writes a release, and prints what it has.
func runWrite(ctx context.Context, args []string, out io.Writer) error {
	var r release
	flags := flag.NewFlagSet("release write", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version, with its v, which is the tag")
	flags.StringVar(&r.revision, "revision", "", "revision of the sources")
	seconds := flags.Int64("created", 0, "time of all files, in seconds since 1970")
	architectures := flags.String("architectures", "amd64", "architectures, such as \"amd64 arm64\"")
	flags.StringVar(&r.sources, "sources", ".", "directory of the checkout")
	flags.StringVar(&r.programs, "programs", "",
		"directory with a directory of programs and plugins for each architecture")
	flags.StringVar(&r.kubectl, "kubectl", "", "directory with the archives of kubectl-device")
	flags.StringVar(&r.images, "images", "", "directory with an OCI layout for each image")
	flags.StringVar(&r.charts, "charts", "", "directory with the chart's archive; one without archive means no chart")
	flags.StringVar(&r.registry, "registry", "",
		"host and path of the registry from which the chart takes images; by default, images are loaded on the nodes")
	flags.StringVar(&r.out, "out", "", "directory for the release, which is replaced")
	key := flags.String("key", "", "file of the private key, in PEM; one that cosign encrypted needs "+passwordVariable+
		"; without a key, the release is unsigned")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r.created, r.architectures = time.Unix(*seconds, 0).UTC(), strings.Fields(*architectures)
	if *key != "" {
		var err error
		if r.key, err = readKey(*key, os.Getenv(passwordVariable)); err != nil {
			return fmt.Errorf("read the key %s: %w", *key, err)
		}
	}
	return r.write(ctx, out)
}

// runVerify verifies files of a release, as a user does who has them and the public key.
func runVerify(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release verify", flag.ContinueOnError)
	key := flags.String("key", "", "file of the public key, in PEM, from where you trust it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *key == "" || flags.NArg() != 1 {
		return errors.New("want: release verify -key FILE DIRECTORY")
	}
	public, err := os.ReadFile(*key)
	if err != nil {
		return err
	}
	verified, err := verify(flags.Arg(0), public)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d files are those of the release\n", len(verified))
	return err
}

// runPush pushes what a registry has of a release, and prints the images.
func runPush(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release push", flag.ContinueOnError)
	key := flags.String("key", "", "file of the public key, in PEM")
	to := flags.String("to", "", "host and path before each image's name; docker login has who pushes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *key == "" || *to == "" || flags.NArg() != 1 {
		return errors.New("want: release push -key FILE -to REGISTRY DIRECTORY")
	}
	public, err := os.ReadFile(*key)
	if err != nil {
		return err
	}
	return push(ctx, flags.Arg(0), *to, public, out)
}
