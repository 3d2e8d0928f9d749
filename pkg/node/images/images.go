// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images reads from the container runtime what images set in their containers, which the
// kubelet's requests do not have.
package images

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// largestKept is how many bytes of memory the variables and volumes of one image may take that are
// kept.
const largestKept = 64 << 10

// Image is what an image sets in its containers. It is read only.
type Image struct {
	// Variables are in their order. Those without a value are left out: runtimes do not set them.
	Variables []*runtimeapi.KeyValue
	// Volumes are the paths in a container at which the runtime mounts a directory of its own,
	// unless the pod mounts something there. They have no order.
	Volumes []string
	// LeftOut says that Variables and Volumes have none, though the image sets some: they take more
	// than 64 KiB of memory, in which an image may have hundreds of them.
	LeftOut bool
	// Sets is what each container has of the image where the runtime describes it: the variables,
	// the labels that the runtime gives to it, and the mounts of the volumes, at most.
	Sets nribound.Contents
	// Entrypoint is what a container without a command has, too, and Cmd what one has with neither
	// a command nor arguments.
	Entrypoint, Cmd nribound.Contents
}

// Contents returns what the image adds to a container of this configuration.
func (i Image) Contents(config *runtimeapi.ContainerConfig) nribound.Contents {
	contents := i.Sets
	if len(config.GetCommand()) == 0 {
		contents = contents.Plus(i.Entrypoint)
		if len(config.GetArgs()) == 0 {
			contents = contents.Plus(i.Cmd)
		}
	}
	return contents
}

// IsUndescribed reports whether an error of [Cache.Image] says that the runtime does not describe
// the image at all: it does not have it, has no images, or says nothing of their configuration.
func IsUndescribed(err error) bool {
	code := status.Code(err)
	return code == codes.NotFound || code == codes.Unimplemented || errors.Is(err, errNoConfig)
}

// errNoConfig is why nothing is known of an image.
var errNoConfig = errors.New("the container runtime does not say what the image's configuration is (imageSpec in " +
	"its verbose status of the image)")

// maxLabel is the longest label, key and value together, that containerd takes over from an image
// (pkg/labels, Validate). CRI-O takes over none.
const maxLabel = 4096

// imageOf reads the configuration that containerd and CRI-O give with a verbose status.
func imageOf(answer *runtimeapi.ImageStatusResponse) (Image, error) {
	if answer.GetImage() == nil {
		return Image{}, status.Error(codes.NotFound, "the container runtime does not have the image")
	}
	var info struct {
		ImageSpec *struct {
			Config struct {
				Env, Entrypoint, Cmd []string
				Labels               map[string]string
				Volumes              map[string]struct{} // by their paths
			} `json:"config"`
		} `json:"imageSpec"`
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil || info.ImageSpec == nil {
		return Image{}, errNoConfig
	}
	config := info.ImageSpec.Config
	var read Image
	for _, entry := range config.Env {
		if name, value, hasValue := strings.Cut(entry, "="); hasValue {
			read.Variables = append(read.Variables, &runtimeapi.KeyValue{
				Key: strings.Clone(name), Value: []byte(value),
			})
		}
	}
	read.Sets = nribound.CRIContainerContents(&runtimeapi.ContainerConfig{Envs: read.Variables})
	for volume := range config.Volumes {
		read.Volumes = append(read.Volumes, strings.Clone(volume))
	}
	if memoryOf(read.Variables, read.Volumes) > largestKept {
		read.Variables, read.Volumes, read.LeftOut = nil, nil, true
	}
	read.Variables, read.Volumes = slices.Clip(read.Variables), slices.Clip(read.Volumes)
	maps.DeleteFunc(config.Labels, func(key, value string) bool { return len(key)+len(value) > maxLabel })
	read.Sets = read.Sets.Plus(nribound.ContainerContents(&api.Container{Labels: config.Labels})).
		Plus(nribound.VolumesContents(maps.Keys(config.Volumes)))
	read.Entrypoint = nribound.ContainerContents(&api.Container{Args: config.Entrypoint})
	read.Cmd = nribound.ContainerContents(&api.Container{Args: config.Cmd})
	return read, nil
}

// memoryOf returns how many bytes of memory variables and volumes take, about.
func memoryOf(variables []*runtimeapi.KeyValue, volumes []string) (bytes int) {
	for _, variable := range variables {
		// A pointer, what it points to, and what the allocator rounds up.
		bytes += 128 + len(variable.GetKey()) + len(variable.GetValue())
	}
	for _, volume := range volumes {
		bytes += 32 + len(volume)
	}
	return bytes
}
