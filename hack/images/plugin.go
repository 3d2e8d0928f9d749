// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// sdkModule is the module that plugins share with the programs that load them.
const sdkModule = "github.com/kubedevice/kubedevice/pkg/sdk"

// pluginBuild is how a plugin is built for the programs of a release.
type pluginBuild struct {
	// name is that of the plugin's files and of its image.
	name string
	// module is the directory of the plugin's module, with its halves in device and scheduler.
	module string
	// kubecri is the program of the release. It says how plugins are to be built, and checks them.
	kubecri string
	// sdk is the directory of the SDK of the release, installer that of the program in images that
	// copies plugins.
	sdk, installer string
	// work is for what is built.
	work string
}

// pluginNames are names that images may have.
var pluginNames = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)

// runPlugin builds the plugins of a module, checks them, and writes an image that has them.
func runPlugin(ctx context.Context, args []string, out io.Writer) error {
	var b pluginBuild
	var r release
	flags := flag.NewFlagSet("images plugin", flag.ContinueOnError)
	flags.StringVar(&b.name, "name", "", "name of the plugin")
	flags.StringVar(&b.module, "module", "", "directory of the plugin's module")
	flags.StringVar(&b.kubecri, "kubecri", "", "kubecri of the release that is to load the plugin")
	flags.StringVar(&b.sdk, "sdk", "", "directory of the SDK of that release")
	flags.StringVar(&b.installer, "installer", "", "directory of the program that copies plugins out of an image")
	flags.StringVar(&b.work, "work", "", "directory for what is built")
	to := flags.String("out", "", "directory for the image, an OCI layout")
	flags.StringVar(&r.version, "version", "", "version of the release, which is the image's tag, too")
	seconds := flags.Int64("created", 0, "time of the image and of all its files, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !pluginNames.MatchString(b.name) {
		return fmt.Errorf("name %q: want lower-case letters, digits and single dashes", b.name)
	}
	r.created = time.Unix(*seconds, 0).UTC()
	built, err := b.build(ctx, out)
	if err != nil {
		return fmt.Errorf("build plugin %s: %w", b.name, err)
	}
	made, err := built.layer("plugin "+b.name+" and what installs it", r.created)
	if err != nil {
		return err
	}
	i := image{
		name: b.name + "-plugin", title: "Plugin " + b.name + " for KubeDevice", others: true,
		entrypoint: []string{"/install"},
	}
	assembled, err := i.assemble(r, runtime.GOARCH, []layer{made})
	if err != nil {
		return err
	}
	digest, err := i.writeIndex(filepath.Join(*to, i.name), r, map[string]v1.Image{runtime.GOARCH: assembled})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %s\n", digest, i.reference(r))
	return err
}

// build builds the plugin's halves as the programs of the release were built, and has kubecri check
// them. It returns the files of the image.
func (b *pluginBuild) build(ctx context.Context, out io.Writer) (files, error) {
	toolchain, version, err := b.requirements()
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(out, "Building plugin %s by %s with the SDK %s\n", b.name, toolchain, version)
	if err != nil {
		return nil, err
	}
	for _, path := range []*string{&b.module, &b.sdk, &b.work, &b.installer, &b.kubecri} {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(os.RemoveAll(b.work), os.MkdirAll(b.work, 0o755)); err != nil {
		return nil, err
	}
	modfile, err := b.modfile(ctx, toolchain, version)
	if err != nil {
		return nil, err
	}
	all, plugins := files{}, []string{}
	for _, half := range []string{"device", "scheduler"} {
		if _, err := os.Stat(filepath.Join(b.module, half)); errors.Is(err, fs.ErrNotExist) {
			continue // there may be one half alone
		}
		plugin := filepath.Join(b.work, half, b.name+".so")
		err := b.goCommand(ctx, toolchain, b.module, "1", "build", "-buildmode=plugin", "-trimpath", "-buildvcs=false",
			"-modfile="+modfile, "-o", plugin, "./"+half)
		if err != nil {
			return nil, err
		}
		if err := checkProgram(plugin, runtime.GOARCH); err != nil {
			return nil, err
		}
		plugins = append(plugins, plugin)
		all.addSource("plugins/"+half+"/"+b.name+".so", 0o644, plugin)
	}
	if len(plugins) == 0 {
		return nil, fmt.Errorf("%s has neither a directory device nor scheduler", b.module)
	}
	if err := b.check(ctx, plugins, out); err != nil {
		return nil, err
	}
	installer := filepath.Join(b.work, "install")
	if err := b.goCommand(ctx, "", b.installer, "0", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o",
		installer, "."); err != nil {
		return nil, err
	}
	all.addSource("install", 0o755, installer)
	return all, nil
}

// requirements returns the release of Go and the version of the SDK that kubecri was built with.
func (b *pluginBuild) requirements() (toolchain, version string, err error) {
	info, err := buildinfo.ReadFile(b.kubecri)
	if err != nil {
		return "", "", fmt.Errorf("read %s: %w", b.kubecri, err)
	}
	for _, module := range info.Deps {
		if module.Path == sdkModule {
			toolchain, _, _ := strings.Cut(info.GoVersion, " ")
			return toolchain, module.Version, nil
		}
	}
	return "", "", fmt.Errorf("%s was built without the SDK: want the kubecri of a release", b.kubecri)
}

// modfile returns a go.mod file like the module's own, with the release's SDK. The module itself is
// not changed. The plugin says where the SDK was, so that is relative to the module: then the same
// directories side by side make the same bytes anywhere.
func (b *pluginBuild) modfile(ctx context.Context, toolchain, version string) (string, error) {
	file := filepath.Join(b.work, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(b.module, name))
		if errors.Is(err, fs.ErrNotExist) && name == "go.sum" {
			continue // it needs the SDK alone
		}
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(b.work, name), content, 0o644); err != nil {
			return "", err
		}
	}
	sdk, err := filepath.Rel(b.module, b.sdk)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(sdk, "../") {
		sdk = "./" + sdk
	}
	return file, b.goCommand(ctx, toolchain, b.module, "1", "mod", "edit", "-require="+sdkModule+"@"+version,
		"-dropreplace="+sdkModule, "-replace="+sdkModule+"@"+version+"="+sdk, file)
}

// goCommand runs go in a directory, of one release if it is named.
func (b *pluginBuild) goCommand(ctx context.Context, toolchain, dir, cgo string, arguments ...string) error {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED="+cgo)
	if toolchain != "" {
		command.Env = append(command.Env, "GOTOOLCHAIN="+toolchain)
	}
	if printed, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, bytes.TrimSpace(printed))
	}
	return nil
}

// check has kubecri check the plugins, and prints what it says.
func (b *pluginBuild) check(ctx context.Context, plugins []string, out io.Writer) error {
	// Who may change the files where they are built does not matter: an image is installed.
	command := exec.CommandContext(ctx, b.kubecri,
		append([]string{"plugin", "check", "--allow-writable-plugins"}, plugins...)...)
	printed, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubecri of the release does not load it: %s", bytes.TrimSpace(printed))
	}
	_, err = out.Write(printed)
	return err
}
