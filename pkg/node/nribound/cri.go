// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nribound

import (
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountOptions is what a bind mount takes besides its paths: its type, and options such as rbind,
// rprivate and rw. mountStrings is how many strings it has.
const mountOptions, mountStrings = 32, mountPaths + 3

// volumeSource is the most that the path on the node of an image's volume takes. containerd's is
// ROOT/io.containerd.grpc.v1.cri/containers/ID/volumes/ID (internal/cri/server/helpers.go,
// getContainerRootDir, and container_create.go, volumeMounts), 194 bytes with the root
// /var/lib/containerd and IDs of 64 bytes. CRI-O's, in the container's run directory, is
// mounts/ID (server/container_create.go, addImageVolumes), which is no longer. The rest is for
// longer roots.
const volumeSource = 256

// CRIContainerContents returns the contents of a container of the CRI. What its image
// sets is not in it.
func CRIContainerContents(config *runtimeapi.ContainerConfig) Contents {
	contents := Contents{
		Variables: sizeOfVariables(config.GetEnvs()),
		Args:      sizeOfStrings(config.GetCommand()) + sizeOfStrings(config.GetArgs()),
		Labels:    sizeOfMap(config.GetLabels()), Annotations: sizeOfMap(config.GetAnnotations()),
	}
	contents.Strings = len(config.GetEnvs()) + len(config.GetCommand()) + len(config.GetArgs()) +
		2*len(config.GetLabels()) + 2*len(config.GetAnnotations()) + mountStrings*len(config.GetMounts()) +
		len(config.GetCDIDevices())
	for _, m := range config.GetMounts() {
		contents.Mounts += field(field(len(m.GetContainerPath())) + field(len(m.GetHostPath())) + mountOptions)
	}
	for _, d := range config.GetCDIDevices() {
		contents.CDIDevices += 1 + field(field(len(d.GetName())))
	}
	for _, group := range config.GetLinux().GetSecurityContext().GetSupplementalGroups() {
		contents.Groups += protowire.SizeVarint(uint64(group))
	}
	return contents
}

// sizeOfVariables returns how much of a container its variables take. The value of one may be any
// bytes, as a Secret has them. The runtime stores containers as JSON, from which each byte that is
// not part of a UTF-8 sequence comes back as the three bytes of U+FFFD (encoding/json).
func sizeOfVariables(variables []*runtimeapi.KeyValue) (size int) {
	for _, variable := range variables {
		size += field(len(variable.GetKey()) + len("=") + sizeAsJSON(variable.GetValue()))
	}
	return size
}

// sizeAsJSON returns the length of a text when it was written as JSON and read again.
func sizeAsJSON(text []byte) int {
	size := len(text)
	if utf8.Valid(text) {
		return size
	}
	for len(text) > 0 {
		read, width := utf8.DecodeRune(text)
		if read == utf8.RuneError && width == 1 {
			size += len(string(utf8.RuneError)) - width
		}
		text = text[width:]
	}
	return size
}

// VolumesContents returns what the volumes of an image add to a container at most, by their paths
// in the container. A runtime mounts each, but for those where the pod mounts something, and but
// for all of them if it is configured so.
func VolumesContents(paths iter.Seq[string]) (contents Contents) {
	for path := range paths {
		destination := len("/") + len(path) // runtimes prepend the slash where the image has none
		contents.Mounts += field(field(destination) + field(volumeSource) + mountOptions)
		contents.Strings += mountStrings
	}
	return contents
}

// CRISandboxContents returns the contents of a sandbox of the CRI.
func CRISandboxContents(config *runtimeapi.PodSandboxConfig) Contents {
	return contentsOfSandbox(config.GetLabels(), config.GetAnnotations())
}
