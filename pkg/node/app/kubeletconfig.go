// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// kubeletConfiguration is what kubecri reads of the kubelet's KubeletConfiguration, whatever its
// version; the rest is the kubelet's to check.
type kubeletConfiguration struct {
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
}

// endpointFromKubeletConfig returns containerRuntimeEndpoint of the kubelet's configuration file,
// overridden by the drop-ins in dir as the kubelet does it: *.conf in the order of their paths,
// subdirectories included. Empty arguments are skipped, and so is a directory that is not there.
func endpointFromKubeletConfig(file, dir string) (string, error) {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir != "" {
		dropIns, err := findDropIns(dir)
		if err != nil {
			return "", fmt.Errorf("kubelet configuration directory %s: %w", dir, err)
		}
		files = append(files, dropIns...)
	}
	var merged kubeletConfiguration
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("kubelet configuration: %w", err)
		}
		if err := yaml.Unmarshal(raw, &merged); err != nil {
			return "", fmt.Errorf("kubelet configuration %s: %w", file, err)
		}
	}
	return merged.ContainerRuntimeEndpoint, nil
}

func findDropIns(dir string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			if path == dir && os.IsNotExist(err) {
				return filepath.SkipAll
			}
			return err
		}
		if !entry.IsDir() && filepath.Ext(path) == ".conf" {
			found = append(found, path)
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}
