// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unpackDebian downloads packages and unpacks them.
func unpackDebian(ctx context.Context, b *builder) error {
	apt, err := newApt(b)
	if err != nil {
		return err
	}
	defer apt.close()
	if err := apt.get(ctx, "update"); err != nil {
		return err
	}
	if err := apt.get(ctx, append([]string{"download"}, debian...)...); err != nil {
		return err
	}
	if err := apt.unpack(ctx, b.output(unpacked)); err != nil {
		return err
	}
	return relink(cni, b.output("cni"))
}

// criuRelease is the Debian release whose CRIU is taken, with its libraries, wherever it runs: that
// of the release before does not run on Linux 6.18.
const criuRelease = "trixie"

// unpackCRIU downloads CRIU and unpacks it with all libraries that it needs.
func unpackCRIU(ctx context.Context, b *builder) error {
	own, err := newApt(b)
	if err != nil {
		return err
	}
	defer own.close()
	mirror, err := own.mirror(ctx)
	if err != nil {
		return err
	}
	sources, status := filepath.Join(own.dir, criuRelease), filepath.Join(own.dir, "nothing-installed")
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror,
		criuRelease)
	if err := errors.Join(os.WriteFile(sources, []byte(source), 0o644), os.WriteFile(status, nil, 0o644)); err != nil {
		return err
	}
	other, err := newApt(b, "--option=Dir::Etc::SourceList="+sources, "--option=Dir::Etc::SourceParts=-",
		"--option=Dir::State::Status="+status)
	if err != nil {
		return err
	}
	defer other.close()
	if err := other.get(ctx, "update"); err != nil {
		return err
	}
	if err := other.get(ctx, "install", "--download-only", "--yes", "--no-install-recommends", "criu"); err != nil {
		return err
	}
	root := b.output(filepath.Join(string(CRIU), "root"))
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return err
	}
	if err := other.unpack(ctx, root); err != nil {
		return err
	}
	loaders, err := filepath.Glob(filepath.Join(root, "usr", "lib", "*", "ld-linux-*.so.*"))
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("find the loader of programs in %s: %v, %w", root, loaders, err)
	}
	// CRIU would run iptables, which the machine may lack, to hold up connections meanwhile. The
	// containers of tests have none.
	config := b.output(filepath.Join(string(CRIU), "criu.conf"))
	if err := os.WriteFile(config, []byte("network-lock skip\n"), 0o644); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nCRIU_CONFIG_FILE=%s exec %s --library-path %s %s \"$@\"\n", config, loaders[0],
		filepath.Dir(loaders[0]), filepath.Join(root, "usr", "sbin", "criu"))
	return os.WriteFile(b.output(filepath.Join(string(CRIU), "criu")), []byte(script), 0o755)
}

// apt downloads packages without installing anything or touching the machine's own lists.
type apt struct {
	builder *builder
	dir     string
	options []string
}

// newApt returns an apt with a directory of its own, until it is closed.
func newApt(b *builder, options ...string) (*apt, error) {
	dir, err := os.MkdirTemp(b.dir, "apt-")
	if err != nil {
		return nil, err
	}
	a := &apt{builder: b, dir: dir, options: append([]string{
		"--quiet",
		"--option=Dir::State::Lists=" + filepath.Join(dir, "lists"),
		"--option=Dir::Cache::Archives=" + filepath.Join(dir, "packages"),
		"--option=Dir::Cache::pkgcache=",
		"--option=Dir::Cache::srcpkgcache=",
		"--option=APT::Sandbox::User=root",
	}, options...)}
	for _, directory := range []string{"lists/partial", "packages/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, directory), 0o755); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

func (a *apt) close() { os.RemoveAll(a.dir) } //nolint:errcheck // a left-over directory does no harm

// get runs apt-get where packages are downloaded to.
func (a *apt) get(ctx context.Context, arguments ...string) error {
	return a.builder.commandIn(ctx, filepath.Join(a.dir, "packages"), "apt-get", slices.Concat(a.options, arguments)...)
}

// mirror returns the URI of the Debian archive that the machine uses.
func (a *apt) mirror(ctx context.Context) (string, error) {
	if err := a.get(ctx, "update"); err != nil {
		return "", err
	}
	listed, err := a.builder.commandOutput(ctx, "apt-get", slices.Concat(a.options, []string{"indextargets",
		"--format=$(REPO_URI)", "Identifier: Packages", "Label: Debian", "Component: main"})...)
	if err != nil {
		return "", err
	}
	mirrors := strings.Fields(listed)
	if len(mirrors) == 0 {
		return "", errors.New("apt knows no archive of Debian")
	}
	return mirrors[0], nil
}

// unpack unpacks all downloaded packages into a directory, in place of what is there.
func (a *apt) unpack(ctx context.Context, directory string) error {
	packages, err := filepath.Glob(filepath.Join(a.dir, "packages", "*.deb"))
	if err != nil {
		return err
	}
	fresh := filepath.Join(a.dir, "unpacked")
	for _, file := range packages {
		if err := a.builder.command(ctx, "dpkg-deb", "--extract", file, fresh); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	return os.Rename(fresh, directory)
}
