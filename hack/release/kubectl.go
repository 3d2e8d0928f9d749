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
	"strings"
)

// writeKubectl writes the archives of kubectl's plugin, as they were built, and krew's manifest for
// them.
func (r *release) writeKubectl() error {
	archives, err := filepath.Glob(filepath.Join(r.kubectl, "kubectl-device-*.tar.gz"))
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return fmt.Errorf("%s has no archives: make kubectl-device-all builds them", r.kubectl)
	}
	manifest, err := os.ReadFile(filepath.Join(r.sources, "deploy", "krew", "device.yaml"))
	if err != nil {
		return err
	}
	replaced := []string{"VERSION", r.version}
	for _, archive := range archives {
		content, err := os.ReadFile(archive)
		if err != nil {
			return err
		}
		members, err := readTarGz(archive)
		if err != nil {
			return fmt.Errorf("read %s: %w", archive, err)
		}
		name := filepath.Base(archive)
		err = r.add(artifact{name: name, contents: members, purpose: "ARCHIVE"}, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		platform := strings.TrimSuffix(strings.TrimPrefix(name, "kubectl-device-"), ".tar.gz")
		replaced = append(replaced, "SHA256-"+platform, hex.EncodeToString(sum[:]))
	}
	_, body, found := strings.Cut(string(manifest), "\napiVersion:") // what comes before is about the template
	if !found {
		return errors.New("deploy/krew/device.yaml has no apiVersion")
	}
	filled := "apiVersion:" + strings.NewReplacer(replaced...).Replace(body)
	if at := strings.Index(filled, "SHA256-"); at >= 0 {
		platform, _, _ := strings.Cut(filled[at+len("SHA256-"):], "\n")
		r.missing = "krew-device.yaml, as there is no kubectl-device-" + platform + ".tar.gz"
		return nil
	}
	return r.add(artifact{name: "krew-device.yaml"}, func(w io.Writer) error {
		_, err := io.WriteString(w, filled)
		return err
	})
}
