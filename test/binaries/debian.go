// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"os"
	"path/filepath"
)

// unpackDebian downloads packages with apt and unpacks them, without installing anything or
// touching apt's own lists.
func unpackDebian(ctx context.Context, b *builder) error {
	work, err := os.MkdirTemp(b.dir, "apt-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // a left-over directory does no harm
	for _, directory := range []string{"lists/partial", "archives/partial", "packages"} {
		if err := os.MkdirAll(filepath.Join(work, directory), 0o755); err != nil {
			return err
		}
	}
	apt := func(arguments ...string) error {
		return b.commandIn(ctx, filepath.Join(work, "packages"), "apt-get", append([]string{
			"--quiet",
			"--option=Dir::State::Lists=" + filepath.Join(work, "lists"),
			"--option=Dir::Cache::Archives=" + filepath.Join(work, "archives"),
			"--option=Dir::Cache::pkgcache=",
			"--option=Dir::Cache::srcpkgcache=",
			"--option=APT::Sandbox::User=root",
		}, arguments...)...)
	}
	if err := apt("update"); err != nil {
		return err
	}
	if err := apt(append([]string{"download"}, debian...)...); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(work, "packages", "*.deb"))
	if err != nil {
		return err
	}
	fresh := filepath.Join(work, "unpacked")
	for _, file := range packages {
		if err := b.command(ctx, "dpkg-deb", "--extract", file, fresh); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(b.output(unpacked)); err != nil {
		return err
	}
	if err := os.Rename(fresh, b.output(unpacked)); err != nil {
		return err
	}
	return relink(cni, b.output("cni"))
}
