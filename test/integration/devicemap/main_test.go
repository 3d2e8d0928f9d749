// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicemap tests kubectl device web as its users have it: the program itself, Debian's
// Chromium, a real API server, a reader's rights. Nodes and pods are objects that the tests make.
package devicemap

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/kubectl/web"
	"github.com/kubedevice/kubedevice/test/browser"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/integration/controlplane"
)

var (
	rewrite = flag.Bool("rewrite", false, "take the pictures of the documents again")
	nodes   = flag.Int("nodes", 100, "how many nodes the figures are of")
	limits  = flag.Bool("limits", false, "fail if a figure is above its limit: on a machine that does nothing else")
)

// startTimeout allows for a busy machine, and for the download of the browser.
const startTimeout = 5 * time.Minute

var (
	server   *controlplane.ControlPlane
	root     string // of the checkout
	program  string // kubectl-device
	chromium string
)

func TestMain(m *testing.M) {
	flag.Parse()
	if _, err := web.Page(); err != nil {
		fmt.Fprintln(os.Stderr, "SKIPPED: all tests of this package: \"make page\" comes first, with Node.js:", err)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "kubedevice-map-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, dir); err != nil {
		return 1, err
	}
	if server, err = controlplane.Start(ctx, "--delete-collection-workers=16"); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, server.Stop()
}

// build builds kubectl-device, and fetches the browser where it is not there yet.
func build(ctx context.Context, dir string) (err error) {
	if root, err = checkout.Root(); err != nil {
		return err
	}
	program = filepath.Join(dir, "kubectl-device")
	command := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/kubectl-device")
	command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if said, err := command.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("build kubectl-device: %w", err), errors.New(string(said)))
	}
	chromium, err = browser.Build(ctx, root)
	return err
}
