// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// emulators are Debian's programs that run those of another architecture.
var emulators = map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}

// machineByte is the machine in the header of an ELF file, in the notation of the kernel's
// binfmt_misc.
var machineByte = map[string]string{"amd64": `\x3e`, "arm64": `\xb7`}

// startScript starts the programs of an image under an emulator.
//
//go:embed start.sh
var startScript string

// runStart starts both programs of an image that was made for another architecture, and has them
// load a plugin each. It needs root, and Linux 6.7: the emulator is registered in a user
// namespace alone, so that nothing else on the machine notices.
func runStart(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("images start", flag.ContinueOnError)
	architecture := flags.String("architecture", "", "architecture of the image")
	dir := flags.String("image", "", "directory of the image, an OCI layout that has both programs")
	work := flags.String("work", "", "directory for what is downloaded and unpacked")
	if err := flags.Parse(args); err != nil {
		return err
	}
	emulator, err := emulatorOf(ctx, *architecture, filepath.Join(*work, "emulator"))
	if err != nil {
		return fmt.Errorf("find an emulator for %s: %w", *architecture, err)
	}
	root := filepath.Join(*work, "root-"+*architecture)
	if err := unpackImage(*dir, *architecture, root); err != nil {
		return fmt.Errorf("unpack the image %s for %s: %w", *dir, *architecture, err)
	}
	command := exec.CommandContext(ctx, "unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork",
		"sh", "-euc", startScript, "start", emulator, root, machineByte[*architecture])
	command.Stdout, command.Stderr = out, out
	return command.Run()
}

// emulatorOf returns the emulator for an architecture. Where it is not installed, Debian's package
// is unpacked below dir once.
func emulatorOf(ctx context.Context, architecture, dir string) (string, error) {
	name, ok := emulators[architecture]
	if !ok {
		return "", errors.New("there are images for amd64 and arm64")
	}
	if installed, err := exec.LookPath(name); err == nil {
		return installed, nil
	}
	program := filepath.Join(dir, "root", "usr", "bin", name)
	if _, err := os.Stat(program); !errors.Is(err, fs.ErrNotExist) {
		return program, err
	}
	apt, err := newApt(dir)
	if err != nil {
		return "", err
	}
	if _, err := apt.get(ctx, "update"); err != nil {
		return "", err
	}
	if _, err := apt.get(ctx, "download", "qemu-user-static"); err != nil {
		return "", err
	}
	packages, err := apt.packages()
	if err != nil {
		return "", err
	}
	_, err = output(ctx, "", "dpkg-deb", "--extract", packages[0], filepath.Join(dir, "root"))
	return program, err
}

// unpackImage unpacks the image for an architecture of an OCI layout into a directory.
func unpackImage(dir, architecture, root string) error {
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) == 0 {
		return errors.New("it has no image")
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	made, err := forPlatform(index, architecture)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(root), os.MkdirAll(root, 0o755)); err != nil {
		return err
	}
	content := mutate.Extract(made)
	unpack := exec.Command("tar", "--extract", "--directory="+root)
	unpack.Stdin = content
	var stderr bytes.Buffer
	unpack.Stderr = &stderr
	if err := errors.Join(unpack.Run(), content.Close()); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// forPlatform returns the image for an architecture of an index.
func forPlatform(index v1.ImageIndex, architecture string) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, descriptor := range manifest.Manifests {
		if descriptor.Platform != nil && descriptor.Platform.Architecture == architecture {
			return index.Image(descriptor.Digest)
		}
	}
	return nil, fmt.Errorf("it is not there: make images PLATFORMS=linux/%s", architecture)
}
