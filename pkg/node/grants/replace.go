// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// spare returns the file that becomes the one at path at the next change. Until then nobody reads it, so it does not matter what
// a writer left there that was killed.
func spare(path string) string { return path + ".spare" }

// replaceFile gives the file at path this content in one step, for good: when it returns, no power failure brings the old one
// back. The caller has the lock.
//
// This is most of what giving a device costs, so it is not done by a new file each time, whose inode and blocks the file system
// would have to write in a transaction of its own. Two files take turns: the spare one, whose blocks are there, is overwritten
// and then exchanged with the one at path. That leaves one transaction, the folder's.
func replaceFile(path string, raw []byte) error {
	if err := overwrite(spare(path), raw); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Writing)
	// There is nothing to exchange the first time, and not every file system can: then the spare one is moved.
	if unix.Renameat2(unix.AT_FDCWD, spare(path), unix.AT_FDCWD, path, unix.RENAME_EXCHANGE) != nil {
		if err := os.Rename(spare(path), path); err != nil {
			return err
		}
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Written)
	return nil
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

func syncFolder(path string) (err error) {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	return folder.Sync()
}
