// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// apt downloads packages without installing anything or touching the machine's own lists. To it, no
// package is installed, so that what it downloads does not depend on what the machine has.
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
	status := filepath.Join(dir, "nothing-installed")
	a := &apt{builder: b, dir: dir, options: append([]string{
		"--quiet",
		"--option=Dir::State::Lists=" + filepath.Join(dir, "lists"),
		"--option=Dir::State::Status=" + status,
		"--option=Dir::Cache::Archives=" + filepath.Join(dir, "packages"),
		"--option=Dir::Cache::pkgcache=",
		"--option=Dir::Cache::srcpkgcache=",
		"--option=APT::Sandbox::User=root",
		// For amd64 and arm64, Debian has Go's words.
		"--option=APT::Architecture=" + runtime.GOARCH,
		"--option=APT::Architectures=" + runtime.GOARCH,
	}, options...)}
	for _, directory := range []string{"lists/partial", "packages/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, directory), 0o755); err != nil {
			a.close()
			return nil, err
		}
	}
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *apt) close() { os.RemoveAll(a.dir) }

// get runs apt-get where packages are downloaded to.
func (a *apt) get(ctx context.Context, arguments ...string) error {
	return a.builder.commandIn(ctx, filepath.Join(a.dir, "packages"), "apt-get", slices.Concat(a.options, arguments)...)
}

// download downloads packages alone.
func (a *apt) download(ctx context.Context, packages ...string) error {
	if err := a.get(ctx, "update"); err != nil {
		return err
	}
	return a.get(ctx, append([]string{"download"}, packages...)...)
}

// downloadAll downloads packages with all that they depend on.
func (a *apt) downloadAll(ctx context.Context, packages ...string) error {
	if err := a.get(ctx, "update"); err != nil {
		return err
	}
	return a.get(ctx, append([]string{"install", "--download-only", "--yes", "--no-install-recommends",
		"--option=Debug::NoLocking=true"}, packages...)...)
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

// unpack unpacks all downloaded packages but those with these names into a directory, in place of
// what is there.
func (a *apt) unpack(ctx context.Context, directory string, but ...string) error {
	packages, err := filepath.Glob(filepath.Join(a.dir, "packages", "*.deb"))
	if err != nil {
		return err
	}
	fresh := filepath.Join(a.dir, "unpacked")
	for _, file := range packages {
		name, _, _ := strings.Cut(filepath.Base(file), "_")
		if slices.Contains(but, name) {
			continue
		}
		if err := a.builder.command(ctx, "dpkg-deb", "--extract", file, fresh); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(directory), 0o755); err != nil {
		return err
	}
	return os.Rename(fresh, directory)
}

// find returns the one file that a pattern names below a directory. what says what it is.
func find(what, directory, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(directory, pattern))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("find %s: %d files are %s in %s, want 1: %q", what, len(found), pattern, directory, found)
	}
	return found[0], nil
}
