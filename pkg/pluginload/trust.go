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

// trustedOwner reports whether a user may decide what this process runs: root may, and the user
// that it runs as.
func trustedOwner(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// requireTrusted refuses a path that a user who is not trusted may change or replace. It checks the
// file itself, each directory above it, and the same for the target of each symbolic link on the
// way, by the rules that sshd has for its keys: an owner who is trusted, and no permission to write
// for group and others. A directory that others may write is accepted with the sticky bit set, as
// /tmp has it: there nobody can replace what a trusted user owns. But not as the directory of a
// plugin: whoever may write it can link another file of a trusted user there, which would be
// loaded. (An access control list that lets others write shows in the group's permission.)
//
// path is absolute. The error is a *refusal.
func requireTrusted(path string, trusted func(uid uint32) bool) error {
	rest := components(path)
	for at, links := "/", 0; ; {
		info, err := os.Lstat(at)
		if err != nil {
			return unreadable(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if err := trustedEntry(at, info, trusted, len(rest) > 1); err != nil {
				return err
			}
		} else {
			if err := trustedLink(at, info, trusted); err != nil {
				return err
			}
			if links++; links > maxLinks {
				return refuse("remove the loop", "cannot be read: more than %d symbolic links at %q", maxLinks, at)
			}
			target, err := os.Readlink(at)
			if err != nil {
				return unreadable(err)
			}
			rest = append(components(target), rest...)
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = "/"
			}
		}
		if len(rest) == 0 {
			return nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// components returns the names that a path consists of.
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

// trustedLink checks a symbolic link, whose permissions mean nothing.
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
