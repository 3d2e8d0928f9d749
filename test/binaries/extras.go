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
	// Containerd17 is containerd of the 1.7 series, in a directory of this name.
	Containerd17 Extra = "containerd-1.7"
	// Containerd23 is containerd of the 2.3 series, the last that restores checkpoints from images,
	// in a directory of this name.
	Containerd23 Extra = "containerd-2.3"
	// CRIU freezes and restores the processes of containers, for container runtimes, in a directory
	// of this name.
	CRIU Extra = "criu"
	// Chromium is Debian's browser without a window, with the fonts of the map's pictures, in a
	// directory of this name. [BuildChromium] brings it alone.
	Chromium Extra = "chromium"
	// Critest is the conformance tests of the CRI, critest.test, what runs them, ginkgo, and the
	// images that they pull, image.ConformanceArchive.
	Critest Extra = "critest"
	// DevicePlugins are vendors' device plugins for the kubelet, from their own sources, in a
	// directory of this name. Kubernetes' libraries in them are of the version that the cluster
	// runs, so that they are compiled once.
	DevicePlugins Extra = "device-plugins"
	// PreviousRelease is the release that clusters are upgraded from: its scheduler, its kubecri,
	// their plugins, and its deploy, in a directory of this name.
	PreviousRelease Extra = "v0.1.0"
	// Kubernetes134 is kube-apiserver, kube-controller-manager and kubelet of Kubernetes 1.34, in a
	// directory of this name.
	Kubernetes134 Extra = "kubernetes-1.34"
	// Kubernetes135 is the same of Kubernetes 1.35.
	Kubernetes135 Extra = "kubernetes-1.35"
	// Kubernetes136 is the same of Kubernetes 1.36.
	Kubernetes136 Extra = "kubernetes-1.36"
)

// older are the programs that are built of older Kubernetes: those of a control plane and of nodes
// that KubeDevice has to live with, and does not replace.
var older = []string{"kube-apiserver", "kube-controller-manager", "kubelet"}

// intel are the device plugins of Intel that are built, by the names of their programs.
var intel = []string{"dlb_plugin", "dsa_plugin", "fpga_plugin", "gpu_plugin", "npu_plugin", "qat_plugin", "sgx_plugin"}

var extras = map[Extra]step{
	Containerd17: {
		outputs: inDirectory(string(Containerd17), containerd),
		inputs:  []string{"binaries/extras.go", "third_party/containerd-1.7"},
		run: func(ctx context.Context, b *builder) error {
			return b.buildContainerd(ctx, "third_party/containerd-1.7", "github.com/containerd/containerd",
				string(Containerd17))
		},
	},
	Containerd23: {
		outputs: inDirectory(string(Containerd23), containerd),
		inputs:  []string{"binaries/extras.go", "third_party/containerd-2.3"},
		run: func(ctx context.Context, b *builder) error {
			return b.buildContainerd(ctx, "third_party/containerd-2.3", "github.com/containerd/containerd/v2",
				string(Containerd23))
		},
	},
	Chromium: {
		outputs: []string{ChromiumProgram},
		inputs:  []string{"binaries/extras.go", "binaries/chromium.go"},
		run:     unpackChromium,
	},
	CRIU: {
		outputs: []string{filepath.Join(string(CRIU), "criu")},
		inputs:  []string{"binaries/extras.go"},
		run:     unpackCRIU,
	},
	Critest: {
		outputs: []string{"critest.test", "ginkgo", image.ConformanceArchive},
		inputs:  []string{"binaries/extras.go", "third_party/cri-tools", "image"},
		run: func(ctx context.Context, b *builder) error {
			// ginkgo runs the tests, several at a time.
			if err := b.goBuild(ctx, goBuild{module: "third_party/cri-tools", pkg: "github.com/onsi/ginkgo/v2/ginkgo",
				output: "ginkgo"}); err != nil {
				return err
			}
			if err := b.goTestBuild(ctx, goBuild{module: "third_party/cri-tools",
				pkg: "sigs.k8s.io/cri-tools/cmd/critest", output: "critest.test"}); err != nil {
				return err
			}
			return writeConformanceImages(ctx, b)
		},
	},
	PreviousRelease: {
		outputs: inDirectory(string(PreviousRelease), []string{"kube-scheduler", "kubecri", "plugins", "deploy"}),
		inputs:  []string{"binaries/release.go"},
		run:     buildRelease,
	},
	DevicePlugins: {
		outputs: inDirectory(string(DevicePlugins),
			slices.Concat(intel, []string{"nvidia-device-plugin", "sample-device-plugin", "k8s-rdma-shared-dp"})),
		inputs: []string{"binaries/extras.go", "third_party/device-plugins", "third_party/rdma-shared-device-plugin"},
		run: func(ctx context.Context, b *builder) error {
			packages := []string{"github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",
				"k8s.io/kubernetes/test/images/sample-device-plugin"}
			for _, program := range intel {
				packages = append(packages, "github.com/intel/intel-device-plugins-for-kubernetes/cmd/"+program)
			}
			for _, pkg := range packages {
				build := goBuild{module: "third_party/device-plugins", pkg: pkg,
					output: filepath.Join(string(DevicePlugins), filepath.Base(pkg))}
				if err := b.goBuild(ctx, build); err != nil {
					return err
				}
			}
			// It needs older modules than the others.
			return b.goBuild(ctx, goBuild{module: "third_party/rdma-shared-device-plugin",
				pkg:    "github.com/Mellanox/k8s-rdma-shared-dev-plugin/cmd/k8s-rdma-shared-dp",
				output: filepath.Join(string(DevicePlugins), "k8s-rdma-shared-dp")})
		},
	},
	Kubernetes134: olderKubernetes(Kubernetes134),
	Kubernetes135: olderKubernetes(Kubernetes135),
	Kubernetes136: olderKubernetes(Kubernetes136),
}

// olderKubernetes is the step that builds an older Kubernetes from the module of its name.
func olderKubernetes(extra Extra) step {
	module := filepath.Join("third_party", string(extra))
	return step{
		outputs: inDirectory(string(extra), older),
		inputs:  []string{"binaries/extras.go", module},
		run: func(ctx context.Context, b *builder) error {
			version, err := b.kubernetesVersion(ctx, module)
			if err != nil {
				return err
			}
			for _, program := range older {
				if err := b.goBuild(ctx, goBuild{module: module, pkg: "k8s.io/kubernetes/cmd/" + program,
					output: filepath.Join(string(extra), program), ldflags: version}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// ExtraNames returns the names of all extras, sorted.
func ExtraNames() []string {
	var names []string
	for name := range extras {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// plan returns the steps of a build, those of the chosen extras last: they may need what others
// made.
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

func inDirectory(directory string, names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(directory, name))
	}
	return paths
}
