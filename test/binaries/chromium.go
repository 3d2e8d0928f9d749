// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ChromiumProgram starts [Chromium], in the directory of programs. It takes its arguments.
const ChromiumProgram = string(Chromium) + "/chromium"

// chromiumPackages are what is unpacked, with what they need and the machine lacks.
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

// unpackChromium downloads Chromium and unpacks it with the libraries that the machine lacks.
func unpackChromium(ctx context.Context, b *builder) error {
	apt, err := newApt(b)
	if err != nil {
		return err
	}
	defer apt.close()
	if err := apt.get(ctx, "update"); err != nil {
		return err
	}
	if err := apt.get(ctx, append([]string{"install", "--download-only", "--yes", "--no-install-recommends",
		"--reinstall", "--option=Debug::NoLocking=true"}, chromiumPackages...)...); err != nil {
		return err
	}
	root := b.output(filepath.Join(string(Chromium), "root"))
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return err
	}
	if err := apt.unpack(ctx, root); err != nil {
		return err
	}
	libraries, err := filepath.Glob(filepath.Join(root, "usr", "lib", "*-linux-gnu*"))
	if err != nil || len(libraries) != 1 {
		return fmt.Errorf("find the libraries of Chromium in %s: %v, %w", root, libraries, err)
	}
	fonts := b.output(filepath.Join(string(Chromium), "fonts.conf"))
	conf := fmt.Sprintf(fontsConf, filepath.Join(root, "usr", "share", "fonts"),
		b.output(filepath.Join(string(Chromium), "fonts-cache")))
	script := fmt.Sprintf("#!/bin/sh\nexport FONTCONFIG_FILE=%s LD_LIBRARY_PATH=%s:%s/pulseaudio:%s/nss\n"+
		"exec %s \"$@\"\n", fonts, libraries[0], libraries[0], libraries[0],
		filepath.Join(root, "usr", "lib", "chromium", "chromium-headless-shell"))
	return errors.Join(os.WriteFile(fonts, []byte(conf), 0o644),
		os.WriteFile(b.output(ChromiumProgram), []byte(script), 0o755))
}
