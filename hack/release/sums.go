// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of a release that say what the others are.
const (
	sumsName      = "SHA256SUMS"
	signatureName = sumsName + ".sig"
	publicName    = "kubedevice.pub"
)

// sum returns the SHA-256 of a file, in hexadecimal.
func sum(file string) (string, error) {
	opened, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer opened.Close() //nolint:errcheck // opened for reading
	hash := sha256.New()
	if _, err := io.Copy(hash, opened); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// seal writes the checksums of all files, in the format of sha256sum, and signs them if there is a
// key: so a signature of one file covers all.
func (r *release) seal() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries { // sorted
		checksum, err := sum(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", checksum, entry.Name())
	}
	content := []byte(sums.String())
	if err := os.WriteFile(filepath.Join(r.out, sumsName), content, 0o644); err != nil || r.key == nil {
		return err
	}
	signed, public, err := sign(r.key, content)
	if err != nil {
		return fmt.Errorf("sign %s: %w", sumsName, err)
	}
	return errors.Join(os.WriteFile(filepath.Join(r.out, signatureName), signed, 0o644),
		os.WriteFile(filepath.Join(r.out, publicName), public, 0o644))
}

// verify makes sure that checksums are signed with a key, and that the files in a directory have
// them. Files that were not downloaded may be missing, except for all. It returns the names of
// those that are there.
func verify(dir string, public []byte) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		return nil, err
	}
	signed, err := os.ReadFile(filepath.Join(dir, signatureName))
	if err != nil {
		return nil, err
	}
	if err := verifySignature(public, signed, content); err != nil {
		return nil, fmt.Errorf("%s is not signed with this key: %w", sumsName, err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(content)) {
		checksum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || name != filepath.Base(name) {
			return nil, fmt.Errorf("%s has the line %q", sumsName, line)
		}
		want[name] = checksum
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var verified []string
	for _, entry := range entries {
		name := entry.Name()
		if slices.Contains([]string{sumsName, signatureName, publicName}, name) {
			continue
		}
		if want[name] == "" {
			return nil, fmt.Errorf("%s is no file of the release", name)
		}
		got, err := sum(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if got != want[name] {
			return nil, fmt.Errorf("%s has the checksum %s, the release's has %s: download it again", name, got,
				want[name])
		}
		verified = append(verified, name)
	}
	if len(verified) == 0 {
		return nil, fmt.Errorf("%s has no file of the release", dir)
	}
	return verified, nil
}

// report says what was written.
func (r *release) report(out io.Writer) error {
	content, err := os.ReadFile(filepath.Join(r.out, sumsName))
	if err != nil {
		return err
	}
	text := string(content)
	if r.missing != "" {
		text += "INCOMPLETE: it lacks " + r.missing + "\n"
	}
	if r.key == nil {
		text += "UNSIGNED: there is no key; see docs/contributing/releasing.md\n"
	}
	if r.registry == "" {
		text += "LOCAL: the chart takes images from the nodes; REGISTRY=host/path names a registry\n"
	}
	if strings.HasSuffix(r.revision, "-dirty") {
		text += "DIRTY: the working tree has changes that no commit has; do not publish this\n"
	}
	_, err = io.WriteString(out, text)
	return err
}
