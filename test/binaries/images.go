// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"os"
	"path/filepath"
	"runtime"

	"github.com/kubedevice/kubedevice/test/image"
)

// writeImages makes the images that every node has.
func writeImages(ctx context.Context, b *builder) error {
	pause, err := b.compile(ctx, "pause")
	if err != nil {
		return err
	}
	program, applets, err := b.busybox(ctx)
	if err != nil {
		return err
	}
	return b.writeArchive(image.Archive, image.NewPause(pause), image.NewBusybox(program, applets))
}

// writeConformanceImages makes the images that the CRI's conformance tests pull.
func writeConformanceImages(ctx context.Context, b *builder) error {
	pause, err := b.compile(ctx, "pause")
	if err != nil {
		return err
	}
	euid, err := b.compile(ctx, "euid")
	if err != nil {
		return err
	}
	program, applets, err := b.busybox(ctx)
	if err != nil {
		return err
	}
	return b.writeArchive(image.ConformanceArchive,
		image.NewConformance(image.NewPause(pause), image.NewBusybox(program, applets), euid, runtime.GOARCH)...)
}

// compile returns the static program whose source is image/<name>/<name>.c.
func (b *builder) compile(ctx context.Context, name string) ([]byte, error) {
	source := filepath.Join(b.source, "image", name, name+".c")
	if err := b.command(ctx, "gcc", "-Os", "-static", "-s", "-Wall", "-Werror", "-o", b.output(name),
		source); err != nil {
		return nil, err
	}
	return os.ReadFile(b.output(name))
}

// busybox returns the program and the paths that it wants to be found at.
func (b *builder) busybox(ctx context.Context) (program []byte, applets string, err error) {
	if program, err = os.ReadFile(b.output(Busybox)); err != nil {
		return nil, "", err
	}
	applets, err = b.commandOutput(ctx, b.output(Busybox), "--list-full")
	return program, applets, err
}

func (b *builder) writeArchive(name string, images ...image.Image) error {
	out, err := os.Create(b.output(name))
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // closed below; a second time does no harm
	if err := image.WriteArchive(out, runtime.GOARCH, images...); err != nil {
		return err
	}
	return out.Close()
}
