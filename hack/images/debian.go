// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// debianRelease is the release of Debian that the images stand on.
const debianRelease = "bookworm"

// basePackages are what the images stand on: the C library and what it needs, users, names of
// protocols, certificates, time zones.
var basePackages = []string{
	"base-files", "ca-certificates", "gcc-12-base", "libc6", "libgcc-s1", "netbase", "tzdata",
}

// apt downloads packages. It installs nothing, and leaves the machine's own lists alone.
type apt struct {
	dir     string
	options []string
}

// newApt returns an apt with the machine's sources and architecture, in an empty directory. To it,
// no package is installed, so that what it downloads does not depend on what the machine has.
func newApt(dir string) (*apt, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	for _, directory := range []string{"lists/partial", "packages/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, directory), 0o755); err != nil {
			return nil, err
		}
	}
	status := filepath.Join(dir, "nothing-installed")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	return &apt{dir: dir, options: []string{
		"--quiet=2",
		"--option=Dir::State::Status=" + status,
		"--option=Dir::State::Lists=" + filepath.Join(dir, "lists"),
		"--option=Dir::Cache::Archives=" + filepath.Join(dir, "packages"),
		"--option=Dir::Cache::pkgcache=",
		"--option=Dir::Cache::srcpkgcache=",
		"--option=Acquire::Languages=none",
		"--option=Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"--option=APT::Sandbox::User=root",
	}}, nil
}

// get runs apt-get where packages are downloaded to, and returns what it prints.
func (a *apt) get(ctx context.Context, arguments ...string) (string, error) {
	return output(ctx, filepath.Join(a.dir, "packages"), "apt-get", slices.Concat(a.options, arguments)...)
}

// suites are those of debianRelease, by the label of the archive that has them.
var suites = map[string][]string{
	"Debian":          {debianRelease, debianRelease + "-updates"},
	"Debian-Security": {debianRelease + "-security"},
}

// forRelease makes a use the archives that the machine uses, for debianRelease alone, not for the
// machine's own, and for an architecture. For amd64 and arm64, Debian has Go's words.
func (a *apt) forRelease(ctx context.Context, architecture string) error {
	if _, err := a.get(ctx, "update"); err != nil {
		return err
	}
	listed, err := a.get(ctx, "indextargets", "--format=$(LABEL) $(REPO_URI)", "Identifier: Packages",
		"Component: main")
	if err != nil {
		return err
	}
	var sources strings.Builder
	found := map[string]bool{}
	for line := range strings.Lines(listed) {
		label, uri, _ := strings.Cut(strings.TrimSpace(line), " ")
		if found[label] {
			continue // another release from there
		}
		found[label] = true
		for _, suite := range suites[label] {
			fmt.Fprintf(&sources, "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", uri,
				suite)
		}
	}
	if !found["Debian"] {
		return errors.New("apt of this machine knows no archive of Debian: add one to its sources")
	}
	list := filepath.Join(a.dir, "sources.list")
	if err := os.WriteFile(list, []byte(sources.String()), 0o644); err != nil {
		return err
	}
	a.options = append(a.options, "--option=Dir::Etc::SourceList="+list, "--option=Dir::Etc::SourceParts=-",
		"--option=APT::Architecture="+architecture,
		"--option=APT::Architectures="+architecture)
	_, err = a.get(ctx, "update")
	return err
}

// packages returns the files of all downloaded packages, sorted.
func (a *apt) packages() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(a.dir, "packages", "*.deb"))
	if err == nil && len(found) == 0 {
		err = errors.New("apt-get downloaded nothing")
	}
	return found, err
}

// baseFiles downloads the packages that the images stand on, and returns their files.
func baseFiles(ctx context.Context, architecture, dir string) (files, error) {
	apt, err := newApt(dir)
	if err != nil {
		return nil, err
	}
	if err := apt.forRelease(ctx, architecture); err != nil {
		return nil, err
	}
	if _, err := apt.get(ctx, append([]string{"download"}, basePackages...)...); err != nil {
		return nil, err
	}
	packages, err := apt.packages()
	if err != nil {
		return nil, err
	}
	return unpack(ctx, packages)
}

// leftOut are directories of packages that nothing reads in an image. Licences stay.
var leftOut = []string{"usr/share/lintian", "usr/share/locale", "usr/share/man", "usr/share/bug"}

// unpack returns the files of packages, with what the packages' scripts would have made of them.
func unpack(ctx context.Context, packages []string) (files, error) {
	all := files{}
	for _, deb := range packages {
		content, err := output(ctx, "", "dpkg-deb", "--fsys-tarfile", deb)
		if err != nil {
			return nil, err
		}
		if err := all.addTar(tar.NewReader(strings.NewReader(content)), isLeftOut); err != nil {
			return nil, fmt.Errorf("read package %s: %w", deb, err)
		}
		control, err := output(ctx, "", "dpkg-deb", "--field", deb)
		if err != nil {
			return nil, err
		}
		name, err := output(ctx, "", "dpkg-deb", "--field", deb, "Package")
		if err != nil {
			return nil, err
		}
		// Where scanners look in images without dpkg.
		all.add("var/lib/dpkg/status.d/"+strings.TrimSpace(name), 0o644, []byte(control))
	}
	all.add("etc/ssl/certs/ca-certificates.crt", 0o644, all.certificates())
	all.add("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\n"+
		"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"+
		"nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n"))
	all.add("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n"))
	all.add("etc/nsswitch.conf", 0o644, []byte("passwd: files\ngroup: files\nhosts: files dns\n"))
	return all, nil
}

// isLeftOut reports whether a package's file is not wanted: documentation, except for licences.
func isLeftOut(path string) bool {
	if strings.HasPrefix(path, "usr/share/doc/") && strings.Count(path, "/") > 3 {
		return filepath.Base(path) != "copyright"
	}
	return slices.ContainsFunc(leftOut, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}

// certificates returns all certificates of authorities in one file.
func (f files) certificates() []byte {
	var all bytes.Buffer
	for _, path := range f.sorted() {
		if strings.HasPrefix(path, "usr/share/ca-certificates/") && strings.HasSuffix(path, ".crt") {
			all.Write(bytes.TrimSpace(f[path].content))
			all.WriteByte('\n')
		}
	}
	return all.Bytes()
}

// crossCompilers has the C compiler of Debian for each architecture, and the packages that it comes
// in with the C library's headers.
var crossCompilers = map[string]struct {
	program  string
	packages []string
}{
	"amd64": {"x86_64-linux-gnu-gcc", []string{"gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"}},
	"arm64": {"aarch64-linux-gnu-gcc", []string{"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"}},
}

// compiler returns the path of the C compiler of Debian's packages for an architecture other than
// the machine's: a script of the same name in dir, where the packages are unpacked once. One that
// is installed is not used: it may be of another version, or lack the C library's headers.
func compiler(ctx context.Context, architecture, dir string) (string, error) {
	cross, ok := crossCompilers[architecture]
	if !ok {
		return "", errors.New("there are images for amd64 and arm64")
	}
	script := filepath.Join(dir, cross.program)
	if _, err := os.Stat(script); !errors.Is(err, fs.ErrNotExist) {
		return script, err
	}
	apt, err := newApt(filepath.Join(dir, "apt"))
	if err != nil {
		return "", err
	}
	if _, err := apt.get(ctx, "update"); err != nil {
		return "", err
	}
	arguments := []string{"install", "--download-only", "--yes", "--no-install-recommends"}
	if _, err := apt.get(ctx, append(arguments, cross.packages...)...); err != nil {
		return "", err
	}
	packages, err := apt.packages()
	if err != nil {
		return "", err
	}
	root := filepath.Join(dir, "root")
	for _, deb := range packages {
		if name, _, _ := strings.Cut(filepath.Base(deb), "_"); name == "libc6" {
			continue // that of the machine, which its loader of programs belongs to
		}
		if _, err := output(ctx, "", "dpkg-deb", "--extract", deb, root); err != nil {
			return "", err
		}
	}
	// The script comes last: what it needs is complete then.
	text := fmt.Sprintf("#!/bin/sh\nmachine=$(uname -m)-linux-gnu\n"+
		"LD_LIBRARY_PATH=%[1]s/usr/lib/$machine:%[1]s/lib/$machine exec %[1]s/usr/bin/%[2]s --sysroot=%[1]s \"$@\"\n",
		root, cross.program)
	return script, os.WriteFile(script, []byte(text), 0o755)
}

// output runs a program in a directory and returns what it prints.
func output(ctx context.Context, dir, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = dir
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
