// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package binaries builds the programs of a test cluster from their Go modules: Kubernetes and
// etcd, containerd, runc, crictl; and what goes with them: CNI plugins and container images. It
// needs Go, a C compiler, and Debian's apt and dpkg, which only download and unpack: nothing is
// installed.
//
// A cold build takes minutes. What was built stays as long as its inputs are the same: sources,
// versions, recipes, Go's version.
package binaries

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// step is one part of the build. Its outputs stand in the directory of the programs.
type step struct {
	// name is what the screen shows, and the name of the step's stamp.
	name string
	// outputs are the files that the step makes. The step runs again when one is missing.
	outputs []string
	// inputs are the files and directories, in the test module, whose content decides whether the
	// step runs again.
	inputs []string
	run    func(ctx context.Context, b *builder) error
}

// Build brings the programs in dir, and the extras that are requested, up to date, and reports its
// progress. source is the directory of the test module. Several builds of one directory wait for
// each other.
func Build(ctx context.Context, source, dir string, progress io.Writer, extras ...Extra) error {
	planned, err := plan(extras)
	if err != nil {
		return fmt.Errorf("build the cluster's programs: %w", err)
	}
	return bringAll(ctx, source, dir, progress, planned)
}

// BuildChromium brings the browser [Chromium] in dir up to date, as Build does, and nothing else.
func BuildChromium(ctx context.Context, source, dir string, progress io.Writer) error {
	browser := extras[Chromium]
	browser.name = string(Chromium)
	return bringAll(ctx, source, dir, progress, []step{browser})
}

func bringAll(ctx context.Context, source, dir string, progress io.Writer, planned []step) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build in %s: %w", dir, err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return fmt.Errorf("build in %s: %w", dir, err)
	}
	defer unlock()
	for i, step := range planned {
		b := &builder{source: source, dir: dir, recipes: recipes,
			report: newReport(progress, fmt.Sprintf("[%d/%d] %s", i+1, len(planned), step.name))}
		if err := b.bring(ctx, step); err != nil {
			return fmt.Errorf("build %s: %w", step.name, err)
		}
	}
	return nil
}

// recipes are the files that say how the steps work. All depend on them.
var recipes = []string{
	"binaries/apt.go", "binaries/command.go", "binaries/debian.go", "binaries/images.go", "binaries/steps.go",
}

// builder is what a step works with.
type builder struct {
	source, dir string
	recipes     []string
	report      *report
}

// output is the path of a file in the directory of the programs.
func (b *builder) output(name string) string { return filepath.Join(b.dir, name) }

// bring runs a step unless its outputs are up to date.
func (b *builder) bring(ctx context.Context, s step) error {
	stamp, err := b.stamp(s)
	if err != nil {
		return err
	}
	path := b.output(filepath.Join(".stamps", s.name))
	if b.exist(s.outputs) {
		if previous, err := os.ReadFile(path); err == nil && string(previous) == stamp {
			return nil
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	b.report.start()
	err = s.run(ctx, b)
	b.report.end(err)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(stamp), 0o644)
}

func (b *builder) exist(outputs []string) bool {
	for _, output := range outputs {
		if _, err := os.Stat(b.output(output)); err != nil {
			return false
		}
	}
	return true
}

func lock(dir string) (unlock func(), err error) {
	directory, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX); err != nil {
		directory.Close() //nolint:errcheck // opened for reading
		return nil, err
	}
	return func() { directory.Close() }, nil //nolint:errcheck // opened for reading
}

// reportInterval is how often a long step says that it is still at work.
const reportInterval = 10 * time.Second
