// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkout finds the KubeDevice source tree that a test or a tool runs in.
package checkout

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// module is the first line of the root's go.mod.
const module = "module github.com/kubedevice/kubedevice\n"

// Root returns the absolute path of the source tree around the working directory: the nearest
// directory above it whose go.mod is KubeDevice's own. Go runs each test in its package's
// directory, so it works from every test.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the KubeDevice source tree: %w", err)
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		content, err := os.ReadFile(filepath.Join(directory, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte(module)) {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf(
				"find the KubeDevice source tree: no directory above %s has its go.mod: run this inside a checkout",
				start)
		}
	}
}
