// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// unpackDebian downloads packages and unpacks them.
func unpackDebian(ctx context.Context, b *builder) error {
	apt, err := newApt(b)
	if err != nil {
		return err
	}
	defer apt.close()
	if err := apt.download(ctx, debian...); err != nil {
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
	sources := filepath.Join(own.dir, criuRelease)
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror,
		criuRelease)
	if err := os.WriteFile(sources, []byte(source), 0o644); err != nil {
		return err
	}
	other, err := newApt(b, "--option=Dir::Etc::SourceList="+sources, "--option=Dir::Etc::SourceParts=-")
	if err != nil {
		return err
	}
	defer other.close()
	if err := other.downloadAll(ctx, "criu"); err != nil {
		return err
	}
	root := b.output(filepath.Join(string(CRIU), "root"))
	if err := other.unpack(ctx, root); err != nil {
		return err
	}
	loader, err := find("the loader of programs", root, "usr/lib/*/ld-linux-*.so.*")
	if err != nil {
		return err
	}
	// CRIU would run iptables, which the machine may lack, to hold up connections meanwhile. The
	// containers of tests have none.
	config := b.output(filepath.Join(string(CRIU), "criu.conf"))
	if err := os.WriteFile(config, []byte("network-lock skip\n"), 0o644); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nCRIU_CONFIG_FILE=%s exec %s --library-path %s %s \"$@\"\n", config, loader,
		filepath.Dir(loader), filepath.Join(root, "usr", "sbin", "criu"))
	return os.WriteFile(b.output(filepath.Join(string(CRIU), "criu")), []byte(script), 0o755)
}
