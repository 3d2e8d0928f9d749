// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"io/fs"
	"strings"
	"time"
)

// tree is a made-up file system: files by path, and folders for what is above them.
type tree map[string]file

type file struct {
	mode   fs.FileMode
	target string // of a link
}

func (t tree) Lstat(path string) (fs.FileInfo, error) {
	if file, ok := t[path]; ok {
		return info{path, file.mode}, nil
	}
	for below := range t {
		if strings.HasPrefix(below, path+"/") {
			return info{path, fs.ModeDir}, nil
		}
	}
	return nil, &fs.PathError{Op: "lstat", Path: path, Err: fs.ErrNotExist}
}

func (t tree) Readlink(path string) (string, error) {
	if file, ok := t[path]; ok && file.mode == fs.ModeSymlink {
		return file.target, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: path, Err: fs.ErrInvalid}
}

type info struct {
	name string
	mode fs.FileMode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return 0 }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

var _ fs.FileInfo = info{}

var (
	_ Host = tree{}

	charNode = file{mode: fs.ModeDevice | fs.ModeCharDevice}

	host = tree{
		"/dev/gpu0": charNode, "/dev/gpu1": charNode, "/dev/disk": {mode: fs.ModeDevice}, "/dev/folder": {mode: fs.ModeDir}, "/dev/file": {},
		"/opt/lib": {mode: fs.ModeDir}, "/opt/other": {mode: fs.ModeDir},
		"/dev/link": link("gpu0"), "/dev/by-id/x": link("../gpu1"), "/dev/far": link("/dev/by-id/x"), "/dev/dangling": link("gpu9"),
		"/dev/loop": link("loop"), "/dev/top": link("/"), "/dev/to-file": link("file"), "/lib": link("opt/lib"), "/opt/lib/driver": {mode: fs.ModeDir},
	}
)

func link(target string) file { return file{fs.ModeSymlink, target} }
