// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is the machine: its files and its programs.
type Host struct {
	// Root stands before every path. It is empty for the machine itself.
	Root string
	// Machine has what is not in the files.
	Machine Machine

	// changes, if set, is notified before each change of a file: tests end the program there.
	changes changes
}

// Machine runs programs and measures file systems.
type Machine interface {
	// Run runs a program and returns its output. The error has what the program wrote to stderr.
	Run(ctx context.Context, program string, args ...string) (output string, err error)
	// Free returns how many bytes are free on the file system of a path.
	Free(path string) (uint64, error)
}

// changes is notified of changes of files.
type changes interface{ before(path string) }

func (h Host) noteChange(path string) {
	if h.changes != nil {
		h.changes.before(path)
	}
}

func (h Host) path(path string) string { return filepath.Join("/", h.Root, path) }

func (h Host) exists(path string) bool {
	_, err := os.Lstat(h.path(path))
	return err == nil
}

// selinux is the extended attribute with a file's context, without which SELinux may keep programs
// from it.
const selinux = "security.selinux"

// file is a file at one moment, or that there is none.
type file struct {
	Exists  bool        `json:"exists"`
	Mode    fs.FileMode `json:"mode,omitempty"` // permissions
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	SELinux []byte      `json:"selinux,omitempty"`
	Content []byte      `json:"content,omitempty"`
}

// same reports whether both have the same content, or neither exists.
func (f file) same(other file) bool {
	return f.Exists == other.Exists && bytes.Equal(f.Content, other.Content)
}

// read returns the file at path, or the one that a link there leads to.
func (h Host) read(path string) (file, error) {
	opened, err := os.Open(h.path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return file{}, nil
	}
	if err != nil {
		return file{}, err
	}
	defer opened.Close() //nolint:errcheck // opened for reading
	info, err := opened.Stat()
	if err != nil {
		return file{}, err
	}
	if !info.Mode().IsRegular() {
		return file{}, fmt.Errorf("%s is no regular file", path)
	}
	content, err := os.ReadFile(h.path(path))
	if err != nil {
		return file{}, err
	}
	found := file{Exists: true, Mode: info.Mode().Perm(), Content: content}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		found.UID, found.GID = int(owner.Uid), int(owner.Gid)
	}
	value := make([]byte, 256)
	if n, err := unix.Fgetxattr(int(opened.Fd()), selinux, value); err == nil {
		found.SELinux = value[:n]
	}
	return found, nil
}

// write makes the file at path, or the one that a link there leads to, what it is to be, in one
// step: a reader has the old one or the new one, also after a power failure.
func (h Host) write(path string, wanted file) error {
	h.noteChange(path)
	target := h.target(path)
	directory := filepath.Dir(target)
	if !wanted.Exists {
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDirectory(directory)
	}
	spare, err := os.OpenFile(spareOf(target), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = writeContent(spare, wanted)
	if err = errors.Join(err, spare.Close()); err == nil {
		h.noteChange(path)
		err = os.Rename(spare.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(spare.Name()))
	}
	return syncDirectory(directory)
}

// target returns the file at path, or the one that a link there leads to.
func (h Host) target(path string) string {
	if resolved, err := filepath.EvalSymlinks(h.path(path)); err == nil {
		return resolved
	}
	return h.path(path)
}

// spareOf returns the file that is written before it becomes target.
func spareOf(target string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".kubedevice")
}

// sweep removes what a write left that did not come to its end.
func (h Host) sweep(path string) error {
	if err := os.Remove(spareOf(h.target(path))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeContent gives an open file its content and everything else that it is to have, on disk.
func writeContent(open *os.File, wanted file) error {
	if _, err := open.Write(wanted.Content); err != nil {
		return err
	}
	if err := open.Chown(wanted.UID, wanted.GID); err != nil {
		return err
	}
	if err := open.Chmod(wanted.Mode); err != nil {
		return err
	}
	if len(wanted.SELinux) > 0 {
		if err := unix.Fsetxattr(int(open.Fd()), selinux, wanted.SELinux, 0); err != nil {
			return &fs.PathError{Op: "set the SELinux context of", Path: open.Name(), Err: err}
		}
	}
	return open.Sync()
}

// syncDirectory makes what changed in a directory outlive a power failure. One that is gone has
// nothing to keep.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer directory.Close() //nolint:errcheck // opened for reading
	return directory.Sync()
}
