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
// A release may add JSON fields in the same version: the releases before it ignore them. A file of
// another version counts as corrupt, and so does every file that is not exactly what was written.
package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// ErrCorrupt is wrapped by the error of a file that exists and cannot be used.
var ErrCorrupt = errors.New("the state file is corrupt")

// File is one state file. It has one user in a process; its methods must not run concurrently.
// Other processes may read the file at any time, and may write it: the last one wins.
type File struct {
	// Path is the place of the file. Its directory must exist, and Path+".spare" belongs to it too.
	Path string
	// Kind names the content in the header line. It is a word in lower case.
	Kind string
	// Legacy is where earlier releases kept the same body without a header; empty means nowhere. It
	// is read when there is no file at Path, and removed when there is one.
	Legacy string
	// Failpoints makes Save reach [failpoint.Writing] and [failpoint.Written].
	Failpoints bool

	saved string // header line of what Save wrote last
}

// readTries is how often a file is read that looks corrupt: one that is replaced twice while it is
// read looks so, because two files take turns.
const readTries = 3

// Read passes the body of the file to decode, whose error says that the content makes no sense. The
// error of a file that does not exist wraps [fs.ErrNotExist], and that of a corrupt one
// [ErrCorrupt].
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
	aside := fmt.Sprintf("%s.corrupt-%d", path, time.Now().UnixNano())
	if failed := os.Rename(path, aside); failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("%w; it is kept as %s", err, aside)
}

// read returns the path of the file that it read, too.
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

// Save replaces the file by one with the content as JSON, in one step. When it returns, the content
// survives a power failure. After an error, the file has the old content or the new one. A content
// that Save wrote before is not written again.
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
