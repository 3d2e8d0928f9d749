// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// ConformanceArchive is the name of the file with the images that the CRI's conformance tests
// (critest of cri-tools 1.36) pull, in the directory of the cluster's programs.
const ConformanceArchive = "conformance-images.tar"

// Directories of the repositories that critest pulls from, the same for each host.
const (
	e2eImages = "localhost/e2e-test-images/"
	criImages = "localhost/k8s-staging-cri-tools/"
)

// NewConformance returns images that do what critest expects of those that it pulls, by the same
// repositories and tags. All but one stand on busybox. euid is the program image/euid, architecture
// such as amd64 is part of a name.
//
// One that critest pulls is missing, test-image-digest: it requests that by its digest, which only
// the original has.
func NewConformance(pause, busybox Image, euid []byte, architecture string) []Image {
	busybox = busybox.with(
		script("usr/bin/pgrep", `exec pidof "$@"`),
		script("usr/bin/ipcs", `exec cat /proc/sysvipc/shm`),
	)
	images := []Image{
		busybox.as(e2eImages + "busybox:1.29-2"),
		// not the node's own, which it would take along when it is removed
		pause.marked("pause").as("localhost/pause:3.9"),
		busybox.webServer(80).as(e2eImages + "nginx:1.14-2"),
		busybox.webServer(80).as(e2eImages + "httpd:2.4.39-4"),
		busybox.webServer(12003).as(criImages + "hostnet-nginx-" + architecture + ":latest"),
		busybox.setuid(euid).as(e2eImages + "nonewprivs:1.3"),
		busybox.group().as(criImages + "test-image-predefined-group:latest"),
	}
	for name, user := range map[string]string{"uid": "1002", "username": "www-data", "uid-group": "1003:users",
		"username-group": "www-data:100"} {
		image := busybox.as(criImages + "test-image-user-" + name + ":latest")
		image.Config.User = user
		images = append(images, image)
	}
	for _, name := range []string{"latest:latest", "tag:test", "tag:all", "1:latest", "2:latest", "3:latest"} {
		images = append(images, busybox.marked(name).as(criImages+"test-image-"+name))
	}
	for tag := range 3 { // of one image
		images = append(images, busybox.marked("tags").as(fmt.Sprintf("%stest-image-tags:%d", criImages, tag+1)))
	}
	slices.SortFunc(images, func(a, b Image) int { return strings.Compare(a.Name, b.Name) }) // the same bytes each time
	return images
}

// as returns the image under another name.
func (i Image) as(name string) Image {
	i.Name = name
	return i
}

// marked returns an image that differs from others by its configuration, and so by its digest.
func (i Image) marked(mark string) Image {
	i.Config.Env = append(slices.Clone(i.Config.Env), "IMAGE="+mark)
	return i
}

// with returns the image with more files, or with others in the place of those at the same paths.
func (i Image) with(files ...File) Image {
	replaced := func(old File) bool {
		return slices.ContainsFunc(files, func(f File) bool { return f.Path == old.Path })
	}
	i.Files = append(slices.DeleteFunc(slices.Clone(i.Files), replaced), files...)
	return i
}

// script is a program of the shell.
func script(path, lines string) File {
	return File{Path: path, Mode: 0o755, Content: []byte("#!/bin/sh\n" + lines + "\n")}
}

// webServer returns an image that serves a page on a port, and looks like nginx: by its process,
// its arguments and its pid file.
func (i Image) webServer(port int) Image {
	served := i.with(
		File{Path: "var", Mode: fs.ModeDir | 0o755},
		File{Path: "var/run", Mode: fs.ModeDir | 0o755},
		File{Path: "www", Mode: fs.ModeDir | 0o755},
		File{Path: "www/index.html", Mode: 0o644, Content: []byte("<p>It works.\n")},
		script("nginx", fmt.Sprintf(`echo "httpd on port %[1]d"
echo $$ >/var/run/nginx.pid
trap exit TERM QUIT
httpd -f -p %[1]d -h /www &
wait`, port)),
	)
	served.Config.Entrypoint, served.Config.Cmd = []string{"/nginx"}, []string{"master process"}
	return served
}

// setuid returns an image that runs a program which belongs to root with the rights of root.
func (i Image) setuid(program []byte) Image {
	i = i.with(File{Path: "euid", Mode: fs.ModeSetuid | 0o755, Content: program})
	i.Config.Cmd = []string{"/euid"}
	return i
}

// group returns an image whose user 1000 is in a group that /etc/group gives it.
func (i Image) group() Image {
	i = i.with(
		File{
			Path: "etc/passwd", Mode: 0o644,
			Content: []byte("root:x:0:0:root:/:/bin/sh\ndefault-user:x:1000:1000::/:/bin/sh\n"),
		},
		File{
			Path: "etc/group", Mode: 0o644,
			Content: []byte("root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"),
		},
	)
	i.Config.User = "1000"
	return i
}
