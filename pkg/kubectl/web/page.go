// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"embed"
	"errors"
	"io/fs"
)

//go:embed all:ui/dist
var built embed.FS

// ErrNoPage is returned by [Page] of a program that was built without Node.js.
var ErrNoPage = errors.New("this kubectl-device was built without Node.js and has no page: " +
	"install Node.js 20 or later with npm, run \"make kubectl-device\" and use what it builds")

// Page returns the files of the page: index.html and what it loads.
func Page() (fs.FS, error) {
	page, err := fs.Sub(built, "ui/dist")
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(page, "index.html"); err != nil {
		return nil, ErrNoPage
	}
	return page, nil
}
