// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package site tests the site of the documents as its readers have it: what "make site" writes, in
// Debian's Chromium, with a server and from files.
package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/browser"
	"github.com/kubedevice/kubedevice/test/checkout"
)

// startTimeout allows for a busy machine, the build of Hugo, and the download of the browser.
const startTimeout = 15 * time.Minute

var (
	root     string // of the checkout
	built    string // the directory of the site
	chromium string
)

func TestMain(m *testing.M) {
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
	if root, err = checkout.Root(); err != nil {
		return 1, err
	}
	if built, err = build(ctx, root); err != nil {
		return 1, err
	}
	if chromium, err = browser.Build(ctx, root); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// build makes the site of a checkout, with the releases that are named, as "make site" does, and
// returns its directory.
func build(ctx context.Context, root string, releases ...string) (directory string, err error) {
	command := exec.CommandContext(ctx, filepath.Join(root, "hack", "site", "build.sh"), releases...)
	command.Env = append(os.Environ(), "GOWORK=off")
	if said, err := command.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("make the site: %w", err), errors.New(string(said)))
	}
	return filepath.Join(root, "_output", "site"), nil
}

// policy permits what the site itself has, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'"

// serve serves a site from a plain server until the test ends, and returns its address.
func serve(t *testing.T, directory string) (url string) {
	t.Helper()
	files := http.FileServer(http.Dir(directory))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// pages returns the paths of all pages of a site.
func pages(t *testing.T, directory string) (found []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(directory), ".", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".html") {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
