// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// releaseCommit is the commit that PreviousRelease was made from.
const releaseCommit = "4b560eae2c70464812b7f5c6ddc8a343140cb0cf"

// releaseOutputs are the files and directories of the release, as its own make leaves them.
var releaseOutputs = []string{"_output/bin/kube-scheduler", "_output/bin/kubecri", "_output/plugins", "deploy"}

// buildRelease builds the release from the history of this checkout, by its own recipe.
func buildRelease(ctx context.Context, b *builder) error {
	root := filepath.Dir(b.source)
	tree, err := os.MkdirTemp(b.dir, "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	archive := filepath.Join(tree, "release.tar")
	// Git trusts no checkout of another user by itself; nothing of this one is run.
	git := func(args ...string) error {
		return b.commandIn(ctx, root, "git", slices.Concat([]string{"-c", "safe.directory=*"}, args)...)
	}
	err = git("archive", "--output="+archive, releaseCommit)
	if err != nil && git("fetch", "--quiet", "--unshallow") == nil {
		err = git("archive", "--output="+archive, releaseCommit)
	}
	if err != nil {
		return fmt.Errorf("take %s from the history of %s: %w\nit needs commit %s: get it with "+
			"git fetch --unshallow, or clone the repository with its history", PreviousRelease, root, err,
			releaseCommit)
	}
	if err := b.commandIn(ctx, tree, "tar", "--extract", "--file="+archive); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "make", "binaries", "plugins")
	build.Dir = tree
	// What a make around this one was given is not for this one.
	build.Env = slices.DeleteFunc(append(os.Environ(), "GOWORK=off"), func(variable string) bool {
		return strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "MFLAGS=")
	})
	if _, err := b.finish(build); err != nil {
		return err
	}
	into := b.output(string(PreviousRelease))
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	for _, output := range releaseOutputs {
		if err := os.Rename(filepath.Join(tree, output), filepath.Join(into, filepath.Base(output))); err != nil {
			return err
		}
	}
	return nil
}
