// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// AllowWritableFlag is the flag by which both programs load plugins that other users may change.
const AllowWritableFlag = "allow-writable-plugins"

// maxLinks is how many symbolic links a path may pass, as in Linux.
const maxLinks = 40

// trustedOwner reports whether a user may control the code of this process: root, and the user of
// the process.
func trustedOwner(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// CheckTrusted returns why users other than root and that of this process may change or replace the
// file at an absolute path, or nil.
func CheckTrusted(path string) error { return requireTrusted(path, trustedOwner) }

// requireTrusted refuses a path that an untrusted user may change or replace. It checks the file,
// each directory above it, and the same for the target of each symbolic link on the way, by sshd's
// rules for keys: a trusted owner, and no write permission for group and others. It accepts a
// directory that others may write if the sticky bit is set, as for /tmp: other users cannot replace
// a trusted user's files there. It does not accept such a directory as the plugin's directory: a
// user who may write it can link another file of a trusted user there, which this process would
// load. (The group's permission shows an access control list that lets others write.)
//
// path is absolute. The error is a *refusal.
func requireTrusted(path string, trusted func(uid uint32) bool) error {
	rest := components(path)
	for current, links := "/", 0; ; {
		info, err := os.Lstat(current)
		if err != nil {
			return unreadable(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if err := trustedEntry(current, info, trusted, len(rest) > 1); err != nil {
				return err
			}
		} else {
			if err := trustedLink(current, info, trusted); err != nil {
				return err
			}
			if links++; links > maxLinks {
				return refuse("remove the loop", "cannot be read: more than %d symbolic links at %q", maxLinks, current)
			}
			target, err := os.Readlink(current)
			if err != nil {
				return unreadable(err)
			}
			rest = append(components(target), rest...)
			if current = filepath.Dir(current); filepath.IsAbs(target) {
				current = "/"
			}
		}
		if len(rest) == 0 {
			return nil
		}
		current, rest = filepath.Join(current, rest[0]), rest[1:]
	}
}

// components returns the names in a path.
func components(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// trustedEntry checks a file or directory. sticky says that others may write a directory with the
// sticky bit.
func trustedEntry(path string, info fs.FileInfo, trusted func(uid uint32) bool, sticky bool) error {
	if err := trustedLink(path, info, trusted); err != nil {
		return err
	}
	if info.Mode()&0o022 == 0 || sticky && info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return untrusted(path, info, "group or others may write it")
}

// trustedLink checks a symbolic link, whose permissions have no effect.
func trustedLink(path string, info fs.FileInfo, trusted func(uid uint32) bool) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return untrusted(path, info, "its owner is unknown")
	}
	if !trusted(stat.Uid) {
		return untrusted(path, info, fmt.Sprintf("user %d owns it", stat.Uid))
	}
	return nil
}

func untrusted(path string, info fs.FileInfo, why string) error {
	return refuse(fmt.Sprintf("run chown root and chmod go-w on it, or start with --%s", AllowWritableFlag),
		"can be changed by users other than root: %s %s, and %s", path, info.Mode(), why)
}
