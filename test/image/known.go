// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"io/fs"
	"path"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Names of the images that every node of a test cluster has.
const (
	Busybox = "localhost/busybox:1"
	Pause   = "localhost/pause:1"
)

// Archive is the name of the file with these images, in the directory of the cluster's programs.
const Archive = "images.tar"

// NewPause returns the image of the container that holds a pod's namespaces, from its one static
// program.
func NewPause(program []byte) Image {
	return Image{
		Name:   Pause,
		Config: v1.ImageConfig{Entrypoint: []string{"/pause"}, User: "65535:65535"},
		Files:  []File{{Path: "pause", Mode: 0o755, Content: program}},
	}
}

// NewBusybox returns an image with a shell and the usual tools, from the static program that is all
// of them. applets is what it prints when it is requested --list-full: one path a line.
func NewBusybox(program []byte, applets string) Image {
	made := map[string]bool{}
	image := Image{
		Name:   Busybox,
		Config: v1.ImageConfig{Cmd: []string{"sh"}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
	}
	directory := func(name string, mode fs.FileMode) {
		if name != "." && !made[name] {
			made[name] = true
			image.Files = append(image.Files, File{Path: name, Mode: fs.ModeDir | mode})
		}
	}
	for _, name := range []string{"bin", "dev", "etc", "proc", "sys", "usr"} {
		directory(name, 0o755)
	}
	directory("tmp", fs.ModeSticky|0o777)
	image.Files = append(image.Files,
		File{Path: "bin/busybox", Mode: 0o755, Content: program},
		File{
			Path: "etc/passwd", Mode: 0o644,
			Content: []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
		},
		File{Path: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nnobody:x:65534:\n")},
	)
	for applet := range strings.Lines(applets) {
		applet = strings.TrimSpace(applet)
		if path.Base(applet) == "busybox" {
			continue
		}
		directory(path.Dir(applet), 0o755)
		image.Files = append(image.Files, File{Path: applet, Mode: fs.ModeSymlink | 0o777, Target: "/bin/busybox"})
	}
	return image
}
