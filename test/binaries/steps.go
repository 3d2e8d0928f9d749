// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubedevice/kubedevice/test/image"
)

// kubernetes are the programs that one executable (cmd/upstream) is, by the name it is called by.
var kubernetes = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"}

// containerd are the programs of containerd: daemon, what it starts for each pod, client.
var containerd = []string{"containerd", "containerd-shim-runc-v2", "ctr"}

// debian are the packages that are downloaded and unpacked: the program of the busybox image, the
// pods' network, and the headers that runc is compiled with.
var debian = []string{"busybox-static", "containernetworking-plugins", "libseccomp-dev"}

// Busybox is the program of the busybox image, static, in the directory of programs.
const Busybox = unpacked + "/bin/busybox"

// The directory of the unpacked packages, and files in it.
const (
	unpacked = "debian"
	cni      = unpacked + "/usr/lib/cni"
	headers  = unpacked + "/usr/include"
)

// steps are in order: later ones may need what earlier ones made. The shortest come first, so that
// a missing program of the machine shows before the long wait.
var steps = []step{
	{
		name:    "sandbox-init",
		outputs: []string{"sandboxinit"},
		inputs:  []string{"go.mod", "cmd/sandboxinit", "sandbox", "cgroup"},
		run: func(ctx context.Context, b *builder) error {
			return b.goBuild(ctx, goBuild{pkg: "./cmd/sandboxinit", output: "sandboxinit",
				env: []string{"CGO_ENABLED=0"}})
		},
	},
	{
		name:    "debian-packages",
		outputs: []string{Busybox, cni, headers, "cni"},
		run:     unpackDebian,
	},
	{
		name:    "images",
		outputs: []string{image.Archive},
		inputs:  []string{"image"},
		run:     writeImages,
	},
	{
		name:    "runc",
		outputs: []string{"runc"},
		inputs:  []string{"third_party/runc"},
		run: func(ctx context.Context, b *builder) error {
			library, err := find("the library of runc", b.output(unpacked), "usr/lib/*/libseccomp.a")
			if err != nil {
				return err
			}
			return b.goBuild(ctx, goBuild{
				module:  "third_party/runc",
				pkg:     "github.com/opencontainers/runc",
				output:  "runc",
				tags:    "seccomp netgo osusergo",
				ldflags: "-linkmode external -extldflags -static",
				env: []string{ // in place of pkg-config, which the machine may lack
					"PKG_CONFIG=true",
					"CGO_CFLAGS=-I" + b.output(headers),
					"CGO_LDFLAGS=-L" + filepath.Dir(library) + " -lseccomp",
				},
			})
		},
	},
	{
		name:    "containerd",
		outputs: containerd,
		inputs:  []string{"third_party/containerd"},
		run: func(ctx context.Context, b *builder) error {
			return b.buildContainerd(ctx, "third_party/containerd", "github.com/containerd/containerd/v2", "")
		},
	},
	{
		name:    "crictl",
		outputs: []string{"crictl"},
		inputs:  []string{"third_party/cri-tools"},
		run: func(ctx context.Context, b *builder) error {
			return b.goBuild(ctx, goBuild{module: "third_party/cri-tools", pkg: "sigs.k8s.io/cri-tools/cmd/crictl",
				output: "crictl"})
		},
	},
	{
		name:    "kubernetes-and-etcd",
		outputs: append([]string{"upstream"}, kubernetes...),
		inputs:  []string{"go.mod", "cmd/upstream"},
		run:     buildKubernetes,
	},
}

// buildContainerd builds containerd from a module of third_party, whose own programs are below
// prefix, into a directory.
func (b *builder) buildContainerd(ctx context.Context, module, prefix, directory string) error {
	for _, program := range containerd {
		err := b.goBuild(ctx, goBuild{
			module: module,
			pkg:    prefix + "/cmd/" + program,
			output: filepath.Join(directory, program),
			tags:   "no_btrfs no_zfs no_devmapper",
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func buildKubernetes(ctx context.Context, b *builder) error {
	version, err := b.kubernetesVersion(ctx, "")
	if err != nil {
		return err
	}
	if err := b.goBuild(ctx, goBuild{pkg: "./cmd/upstream", output: "upstream", ldflags: version}); err != nil {
		return err
	}
	for _, program := range kubernetes {
		if err := relink("upstream", b.output(program)); err != nil {
			return err
		}
	}
	return nil
}

// kubernetesVersion returns the flags of the linker with which programs of Kubernetes say which
// version they are: that which a module, as in goBuild, requires.
func (b *builder) kubernetesVersion(ctx context.Context, module string) (ldflags string, err error) {
	version, err := b.goCommand(ctx, module, nil, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	var all []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		all = append(all, "-X "+pkg+".gitVersion="+strings.TrimSpace(version))
	}
	return strings.Join(all, " "), nil
}

// relink makes path a symbolic link to target, in place of any file there.
func relink(target, path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}
