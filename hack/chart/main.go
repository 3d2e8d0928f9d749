// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart is what "make chart" runs: it makes those templates of the chart in deploy/chart
// that have the manifests of deploy, the reference of its values in docs/reference/chart-values.md,
// and of the chart's defaults what deploy/kustomize has for nodes. Its tests hold the chart with
// Helm's own library, and deploy/kustomize with kustomize's.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// reference is the document of the chart's values.
const reference = "docs/reference/chart-values.md"

func main() {
	if err := run("../.."); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run writes what is generated, in the checkout whose root is given.
func run(root string) error {
	files, err := generated(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generated returns all files that are generated, by their path from the repository's root.
func generated(root string) (map[string]string, error) {
	made, err := generate(root)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, text := range made {
		files[filepath.Join("deploy", "chart", name)] = text
	}
	manifests, err := generateKustomize(root)
	if err != nil {
		return nil, fmt.Errorf("deploy/kustomize: %w", err)
	}
	for name, text := range manifests {
		files[filepath.Join("deploy", name)] = text
	}
	schema, err := os.ReadFile(filepath.Join(root, "deploy", "chart", "values.schema.json"))
	if err != nil {
		return nil, err
	}
	defaults, err := os.ReadFile(filepath.Join(root, "deploy", "chart", "values.yaml"))
	if err != nil {
		return nil, err
	}
	if files[reference], err = valuesReference(schema, defaults); err != nil {
		return nil, err
	}
	return files, nil
}
