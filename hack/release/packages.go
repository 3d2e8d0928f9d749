// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// scripts are the maintainer scripts of the packages: PACKAGE.postinst and such.
//
//go:embed scripts
var scripts embed.FS

// Where the packages have what docs/deploy/install.md puts below /usr/local, which is the
// administrator's.
const (
	packagedPrograms   = "usr/bin/"
	packagedScheduler  = "usr/lib/kubedevice/kube-scheduler"
	packagedDevices    = "usr/lib/kubedevice/devices"
	packagedSchedulers = "usr/lib/kubedevice/schedulers"
	packagedUnits      = "usr/lib/systemd/system/"
	packagedPatches    = "usr/share/kubedevice/kubeadm/"
)

// repackaged are the paths of the manifests, and those of the packages. Longer ones come first.
var repackaged = strings.NewReplacer(
	"/usr/local/bin/kubecri", "/"+packagedPrograms+"kubecri",
	"/usr/local/bin/kube-scheduler", "/"+packagedScheduler,
	"/usr/local/KubeExt/devices", "/"+packagedDevices,
	"/usr/local/KubeExt/schedulers", "/"+packagedSchedulers,
)

// debianPackage is one package of Debian.
type debianPackage struct {
	name, summary, description string
	// exact are packages that it needs in its own version: plugins and their host.
	exact   []string
	members []member
	// directories are there without content.
	directories []string
	// configuration are the paths of members that administrators change.
	configuration []string
}

// writePackages writes the Debian packages for each architecture.
func (r *release) writePackages() error {
	for _, architecture := range r.architectures {
		packages, err := r.packages(filepath.Join(r.programs, architecture))
		if err != nil {
			return err
		}
		for _, p := range packages {
			if err := r.writePackage(p, architecture); err != nil {
				return fmt.Errorf("%s for %s: %w", p.name, architecture, err)
			}
		}
	}
	return nil
}

// packages returns the packages with what was built for one architecture.
func (r *release) packages(built string) ([]debianPackage, error) {
	kubecri := debianPackage{
		name: "kubedevice-kubecri", summary: "gives containers exactly the devices that the scheduler chose",
		description: "A proxy between the kubelet and containerd or CRI-O. It publishes the node's devices.\n" +
			"Installing it changes nothing on the node: kubecri enrol does.",
		members: []member{
			{path: packagedPrograms + "kubecri", mode: 0o755, source: filepath.Join(built, "kubecri")},
		},
		directories:   []string{packagedDevices},
		configuration: []string{"etc/kubedevice/kubecri.yaml"},
	}
	plugin := debianPackage{
		name: "kubedevice-nvidiagpu", summary: "NVIDIA GPUs for kubecri",
		description: "The device plugin for nodes with NVIDIA GPUs.",
		exact:       []string{"kubedevice-kubecri"},
		members: []member{{
			path: packagedDevices + "/nvidiagpu.so", mode: 0o644,
			source: filepath.Join(built, "plugins", "device", "nvidiagpu.so"),
		}},
	}
	scheduler := debianPackage{
		name: "kubedevice-scheduler", summary: "kube-scheduler that chooses exact devices",
		description: "A drop-in kube-scheduler with the plugin for NVIDIA GPUs, as a unit of systemd, and patches\n" +
			"for kubeadm, which runs it as a static pod. Installing it starts nothing.",
		members: []member{
			{path: packagedScheduler, mode: 0o755, source: filepath.Join(built, "kube-scheduler")},
			{
				path: packagedSchedulers + "/nvidiagpu.so", mode: 0o644,
				source: filepath.Join(built, "plugins", "scheduler", "nvidiagpu.so"),
			},
		},
		configuration: []string{"etc/default/kubedevice-scheduler"},
	}
	for _, from := range []struct {
		to           *debianPackage
		source, path string
	}{
		{&kubecri, "systemd/kubecri.service", packagedUnits + "kubecri.service"},
		{&kubecri, "systemd/kubecri.socket", packagedUnits + "kubecri.socket"},
		{&kubecri, "systemd/kubecri.yaml", "etc/kubedevice/kubecri.yaml"},
		{&scheduler, "systemd/kubedevice-scheduler.service", packagedUnits + "kubedevice-scheduler.service"},
		{&scheduler, "systemd/kubedevice-scheduler.default", "etc/default/kubedevice-scheduler"},
		{
			&scheduler, "kubeadm/patches/kube-scheduler0+json.yaml",
			packagedPatches + "patches/kube-scheduler0+json.yaml",
		},
		{
			&scheduler, "kubeadm/patches-seals/kube-scheduler1+json.yaml",
			packagedPatches + "patches-seals/kube-scheduler1+json.yaml",
		},
	} {
		text, err := os.ReadFile(filepath.Join(r.sources, "deploy", filepath.FromSlash(from.source)))
		if err != nil {
			return nil, err
		}
		from.to.members = append(from.to.members, member{
			path: from.path, mode: 0o644, content: []byte(repackaged.Replace(string(text))),
		})
	}
	return []debianPackage{kubecri, plugin, scheduler}, nil
}

// writePackage writes a package. nfpm reads files alone, so what is made up is written first.
func (r *release) writePackage(p debianPackage, architecture string) error {
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	p.members = append(p.members, r.licence("usr/share/doc/"+p.name+"/copyright"))
	info := &nfpm.Info{
		Name: p.name, Arch: architecture, Platform: "linux", Version: r.version, Section: "admin", Priority: "optional",
		Maintainer: "The KubeDevice Authors <kubedevice@invalid>", Description: p.summary + "\n" + p.description,
		Homepage: home, License: apache, MTime: r.created, DisableGlobbing: true,
	}
	nfpm.WithDefaults(info)
	version := info.Version
	if info.Prerelease != "" {
		version += "~" + info.Prerelease
	}
	info.Depends = []string{"libc6 (>= 2.34)"}
	for _, other := range p.exact {
		info.Depends = append(info.Depends, other+" (= "+version+")")
	}
	for _, path := range p.directories {
		info.Contents = append(info.Contents, &files.Content{
			Destination: "/" + path, Type: files.TypeDir,
			FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.created},
		})
	}
	for i, m := range p.members {
		if m.source == "" {
			m.source = filepath.Join(work, fmt.Sprint(i))
			if err := os.WriteFile(m.source, m.content, 0o644); err != nil {
				return err
			}
		}
		kind := files.TypeFile
		for _, path := range p.configuration {
			if path == m.path {
				kind = files.TypeConfig
			}
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: m.source, Destination: "/" + m.path, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(m.mode), MTime: r.created},
		})
	}
	for name, field := range map[string]*string{
		"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove, "postrm": &info.Scripts.PostRemove,
	} {
		text, err := scripts.ReadFile("scripts/" + p.name + "." + name)
		if err != nil {
			continue // the package has none
		}
		*field = filepath.Join(work, name)
		if err := os.WriteFile(*field, text, 0o755); err != nil {
			return err
		}
	}
	a := artifact{name: deb.Default.ConventionalFileName(info), contents: p.members, purpose: "INSTALL"}
	return r.add(a, func(w io.Writer) error { return deb.Default.Package(info, w) })
}
