// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// spare is the file that the next write makes the one at Path. Nobody reads it before, so it does
// not matter what a writer left there that was killed.
func (f *File) spare() string { return f.Path + ".spare" }

// replace gives the file the content raw in one step.
//
// The write is most of what it costs to grant a device. A new file each time would cost a
// transaction of the file system for its inode and blocks. So two files take turns: the spare one,
// which has its blocks already, is overwritten, and then exchanged with the one at Path. One
// transaction remains, that of the directory. (This is why google/renameio does not do: it creates
// a file each time, and does not sync the directory.)
func (f *File) replace(raw []byte) (err error) {
	directory, err := os.Open(filepath.Dir(f.Path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, directory.Close()) }()
	// Two processes run during a hand-over, and must not use the spare file at the same time.
	if err := lock(directory); err != nil {
		return err
	}
	if err := overwrite(f.spare(), raw); err != nil {
		return err
	}
	if f.Failpoints {
		failpoint.Reach(failpoint.Writing)
	}
	// The first time there is nothing to exchange, and some file systems cannot: then the spare is
	// moved.
	if unix.Renameat2(unix.AT_FDCWD, f.spare(), unix.AT_FDCWD, f.Path, unix.RENAME_EXCHANGE) != nil {
		if err := os.Rename(f.spare(), f.Path); err != nil {
			return err
		}
	}
	if f.Legacy != "" {
		if err := os.Remove(f.Legacy); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := directory.Sync(); err != nil {
		return err
	}
	if f.Failpoints {
		failpoint.Reach(failpoint.Written)
	}
	return nil
}

// lock locks the directory until it is closed.
func lock(directory *os.File) error {
	for {
		err := unix.Flock(int(directory.Fd()), unix.LOCK_EX)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "lock", Path: directory.Name(), Err: err}
		}
	}
}

// overwrite makes raw the content of the file at path, on disk.
func overwrite(path string, raw []byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.WriteAt(raw, 0); err != nil {
		return err
	}
	// Changes nothing where the size is the same, as it mostly is.
	if err := file.Truncate(int64(len(raw))); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(file.Fd())); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: path, Err: err}
	}
	return nil
}
