// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"
)

// maxLinks is how many symbolic links the path to a file may go through: the kernel's own limit.
const maxLinks = 40

// checkPath demands the one form in which a path can be compared with others.
func checkPath(p string) error {
	switch {
	case !path.IsAbs(p):
		return fmt.Errorf("path %q is not absolute", p)
	case path.Clean(p) != p:
		return fmt.Errorf("path %q is not in its shortest form %q", p, path.Clean(p))
	case !utf8.ValidString(p):
		return fmt.Errorf("path %q is not UTF-8 text", p)
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("path %q has a NUL character", p)
	case p == "/":
		return errors.New("path / is the whole file system")
	}
	return nil
}

// resolve walks to the file at p and returns its path without symbolic links, and what is there. It
// follows a link only if mayFollow says so of the link's own path.
func resolve(host HostFS, p string, mayFollow func(link string) bool) (string, fs.FileInfo, error) {
	if err := checkPath(p); err != nil {
		return "", nil, err
	}
	at, left := "/", strings.Split(p[1:], "/")
	for links := 0; len(left) > 0; {
		name := left[0]
		left = left[1:]
		switch name {
		case "", ".":
			continue
		case "..": // only in a link's target
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, name)
		info, err := host.Lstat(next)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", next, cause(err))
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if !mayFollow(next) {
			return "", nil, fmt.Errorf(
				"%s is a symbolic link that the plugin did not declare; "+
					"it must name the file itself, or declare the link",
				next,
			)
		}
		if links++; links > maxLinks {
			return "", nil, fmt.Errorf("%s: more than %d symbolic links", p, maxLinks)
		}
		target, err := host.Readlink(next)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", next, cause(err))
		}
		if path.IsAbs(target) {
			at = "/"
		}
		left = append(strings.Split(target, "/"), left...)
	}
	if at == "/" {
		return "", nil, fmt.Errorf("%s leads to the whole file system", p)
	}
	info, err := host.Lstat(at)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", at, cause(err))
	}
	return at, info, nil
}

// cause is what is wrong with a file, without the system call's name and the path.
func cause(err error) error {
	if unwrapped := errors.Unwrap(err); unwrapped != nil {
		return unwrapped
	}
	return err
}
