// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ChromiumProgram starts [Chromium], in the directory of programs. It takes its arguments.
const ChromiumProgram = string(Chromium) + "/chromium"

// chromiumPackages are what is unpacked, with what they depend on.
var chromiumPackages = []string{"chromium-headless-shell", "fontconfig-config", "fonts-dejavu-core", "fonts-inter"}

// fontsConf makes pages look the same on all machines: their fonts are those of a directory.
const fontsConf = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>%s</dir>
  <cachedir>%s</cachedir>
  <alias binding="same"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
</fontconfig>
`

// fromTheMachine are packages that Chromium needs and that are not unpacked: the machine's loader
// of programs starts Chromium, and it works with the C library that it belongs to alone.
var fromTheMachine = []string{"libc6"}

// unpackChromium downloads Chromium and unpacks it with the libraries that it needs.
func unpackChromium(ctx context.Context, b *builder) error {
	apt, err := newApt(b)
	if err != nil {
		return err
	}
	defer apt.close()
	if err := apt.downloadAll(ctx, chromiumPackages...); err != nil {
		return err
	}
	root := b.output(filepath.Join(string(Chromium), "root"))
	if err := apt.unpack(ctx, root, fromTheMachine...); err != nil {
		return err
	}
	libraries, err := find("the libraries of Chromium", root, "usr/lib/*-linux-gnu*")
	if err != nil {
		return err
	}
	// Before Debian 13, some packages have theirs outside /usr.
	path := []string{libraries, filepath.Join(root, "lib", filepath.Base(libraries)),
		filepath.Join(libraries, "pulseaudio"), filepath.Join(libraries, "nss")}
	fonts := b.output(filepath.Join(string(Chromium), "fonts.conf"))
	conf := fmt.Sprintf(fontsConf, filepath.Join(root, "usr", "share", "fonts"),
		b.output(filepath.Join(string(Chromium), "fonts-cache")))
	script := fmt.Sprintf("#!/bin/sh\nexport FONTCONFIG_FILE=%s LD_LIBRARY_PATH=%s\nexec %s \"$@\"\n", fonts,
		strings.Join(path, ":"), filepath.Join(root, "usr", "lib", "chromium", "chromium-headless-shell"))
	return errors.Join(os.WriteFile(fonts, []byte(conf), 0o644),
		os.WriteFile(b.output(ChromiumProgram), []byte(script), 0o755))
}
