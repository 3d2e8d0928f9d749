// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefile keeps small state in files that survive crashes and power failures.
//
// A file is a header line and a body of JSON:
//
//	kubedevice-<kind> v1 sha256:<hexadecimal SHA-256 of the body>
//	{...}
//
// Spaces at the end fill the file up to whole blocks, so that a small change rarely changes its
// size.
//
// A release may add JSON fields in the same version: earlier releases ignore them. A file of
// another version counts as corrupt, and so does every file that differs from the written content.
package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// ErrCorrupt is in the error of a file that exists and is invalid.
var ErrCorrupt = errors.New("the state file is corrupt")

// File is one state file. It has one user in a process; its methods must not run concurrently.
// Other processes may read and write the file at any time: the last writer wins.
type File struct {
	// Path is the path of the file. Its directory must exist, and Path+".spare" is used, too.
	Path string
	// Kind names the content in the header line. It is a word in lower case.
	Kind string
	// Legacy is the path at which earlier releases kept the same body without a header, or empty.
	// Read uses it if there is no file at Path, and Save removes it.
	Legacy string
	// Failpoints makes Save reach [failpoint.Writing] and [failpoint.Written].
	Failpoints bool

	saved string // header line of the last save
}

// readTries is how often Read reads a file that seems corrupt: since replace alternates between two
// files, a reader may see a mixed content if a writer replaces the file twice in the meantime.
const readTries = 3

// Read passes the body of the file to decode, which returns an error for invalid content. The error
// for an absent file wraps [fs.ErrNotExist], and the error for a corrupt one [ErrCorrupt].
func (f *File) Read(decode func(body []byte) error) error {
	_, err := f.read(decode)
	return err
}

// Load is Read for the owner of the file: it renames a corrupt file, so that the next Save does not
// overwrite it. Its error then names the new path.
func (f *File) Load(decode func(body []byte) error) error {
	path, err := f.read(decode)
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	kept := fmt.Sprintf("%s.corrupt-%d", path, time.Now().UnixNano())
	if failed := os.Rename(path, kept); failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("%w; it is kept as %s", err, kept)
}

// read is Read, and returns the path of the read file, too.
func (f *File) read(decode func(body []byte) error) (path string, err error) {
	for range readTries {
		path = f.Path
		raw, failed := os.ReadFile(path)
		body := raw
		switch {
		case failed == nil:
			body, failed = parse(f.Kind, raw)
		case errors.Is(failed, fs.ErrNotExist) && f.Legacy != "":
			path = f.Legacy
			if body, failed = os.ReadFile(path); failed != nil {
				return path, failed
			}
		default:
			return path, failed
		}
		if failed == nil {
			failed = decode(body)
		}
		if failed == nil {
			return path, nil
		}
		err = fmt.Errorf("%s: %w: %w", path, ErrCorrupt, failed)
	}
	return path, err
}

// Save replaces the content of the file with content as JSON, in one step. When it returns, the
// content survives a power failure. After an error, the file has the old content or the new one.
// Save does not write the content of the last Save again.
func (f *File) Save(content any) error {
	header, body, err := encode(f.Kind, content)
	if err != nil {
		return err
	}
	if header == f.saved {
		return nil
	}
	f.saved = ""
	if err := f.replace(append([]byte(header), body...)); err != nil {
		return err
	}
	f.saved = header
	return nil
}
