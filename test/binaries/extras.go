// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/kubedevice/kubedevice/test/image"
)

// Extra is a part of the build that not every cluster needs. Its value is its name.
type Extra string

const (
	// Containerd17 is containerd of the 1.7 series, in a folder of this name.
	Containerd17 Extra = "containerd-1.7"
	// Critest is the conformance tests of the CRI, critest.test, what runs them, ginkgo, and the images that they pull,
	// image.ConformanceArchive.
	Critest Extra = "critest"
)

var extras = map[Extra]step{
	Containerd17: {
		outputs: inFolder(string(Containerd17), containerd),
		inputs:  []string{"binaries/extras.go", "third_party/containerd-1.7"},
		run: func(ctx context.Context, b *builder) error {
			return b.buildContainerd(ctx, "third_party/containerd-1.7", "github.com/containerd/containerd", string(Containerd17))
		},
	},
	Critest: {
		outputs: []string{"critest.test", "ginkgo", image.ConformanceArchive},
		inputs:  []string{"binaries/extras.go", "third_party/cri-tools", "image"},
		run: func(ctx context.Context, b *builder) error {
			// ginkgo runs the tests, several at a time.
			if err := b.goBuild(ctx, goBuild{module: "third_party/cri-tools", pkg: "github.com/onsi/ginkgo/v2/ginkgo", output: "ginkgo"}); err != nil {
				return err
			}
			if err := b.goTestBuild(ctx, goBuild{module: "third_party/cri-tools", pkg: "sigs.k8s.io/cri-tools/cmd/critest", output: "critest.test"}); err != nil {
				return err
			}
			return writeConformanceImages(ctx, b)
		},
	},
}

// plan returns the steps of a build, those of the chosen extras last: they may need what others made.
func plan(chosen []Extra) ([]step, error) {
	planned := slices.Clone(steps)
	for _, name := range chosen {
		extra, ok := extras[name]
		if !ok {
			return nil, fmt.Errorf("there is no extra %q: they are %q", name, slices.Sorted(maps.Keys(extras)))
		}
		extra.name = string(name)
		if !slices.ContainsFunc(planned, func(s step) bool { return s.name == extra.name }) {
			planned = append(planned, extra)
		}
	}
	return planned, nil
}

func inFolder(folder string, names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(folder, name))
	}
	return paths
}
