// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// tree is a made-up file system: files by path, and directorys for what is above them.
type tree map[string]file

type file struct {
	mode   fs.FileMode
	target string // of a link
}

func (t tree) Lstat(at string) (fs.FileInfo, error) {
	if file, ok := t[at]; ok {
		return info{at, file.mode}, nil
	}
	for below := range t {
		if strings.HasPrefix(below, at+"/") {
			return info{at, fs.ModeDir}, nil
		}
	}
	return nil, &fs.PathError{Op: "lstat", Path: at, Err: fs.ErrNotExist}
}

func (t tree) Readlink(at string) (string, error) {
	if file, ok := t[at]; ok && file.mode == fs.ModeSymlink {
		return file.target, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: at, Err: fs.ErrInvalid}
}

func (t tree) ReadDir(directory string) ([]fs.DirEntry, error) {
	if t[directory] == locked {
		return nil, &fs.PathError{Op: "open", Path: directory, Err: fs.ErrPermission}
	}
	inside := map[string]fs.DirEntry{}
	for at := range t {
		below, is := strings.CutPrefix(at, directory+"/")
		if !is {
			continue
		}
		name, _, _ := strings.Cut(below, "/")
		what, err := t.Lstat(path.Join(directory, name))
		if err != nil {
			return nil, err
		}
		inside[name] = fs.FileInfoToDirEntry(what)
	}
	return slices.SortedFunc(
		maps.Values(inside),
		func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) },
	), nil
}

type info struct {
	path string
	mode fs.FileMode
}

func (i info) Name() string       { return path.Base(i.path) }
func (i info) Size() int64        { return 0 }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

var _ fs.FileInfo = info{}

var (
	_ HostFS = tree{}

	charNode = file{mode: fs.ModeDevice | fs.ModeCharDevice}
	locked   = file{mode: fs.ModeDir | fs.ModeSticky}

	host = tree{
		"/dev/gpu0": charNode, "/dev/gpu1": charNode, "/dev/disk": {mode: fs.ModeDevice},
		"/dev/directory": {mode: fs.ModeDir}, "/dev/file": {},
		"/opt/lib": {mode: fs.ModeDir}, "/opt/other": {mode: fs.ModeDir},
		"/dev/link": link(
			"gpu0",
		), "/dev/by-id/x": link("../gpu1"), "/dev/far": link("/dev/by-id/x"), "/dev/dangling": link("gpu9"),
		"/dev/loop": link(
			"loop",
		), "/dev/top": link("/"), "/dev/to-file": link("file"), "/lib": link("opt/lib"),
		"/opt/lib/driver": {mode: fs.ModeDir},
		"/snd/timer":      charNode, "/snd/seq": charNode, "/snd/by-path/card": link("../seq"),
		"/snd/more/pcm": charNode,
		"/snd/README":   {}, "/snd/pipe": {mode: fs.ModeNamedPipe},
		"/snd/console": charNode, "/snd/pts/0": charNode, "/to-snd": link("snd"), "/keys/key": charNode,
		"/keys/locked": locked,
	}
)

func link(target string) file { return file{fs.ModeSymlink, target} }
