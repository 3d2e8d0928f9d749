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

// largestKept is how many bytes of memory the variables of one image may take that are kept.
const largestKept = 64 << 10

// Image is what an image sets in its containers. It is read only.
type Image struct {
	// Variables are in their order. Those without a value are left out: runtimes do not set them.
	Variables []*runtimeapi.KeyValue
	// VariablesLeftOut says that Variables has none, though the image sets some: they take more
	// than 64 KiB of memory, in which an image may have hundreds of them.
	VariablesLeftOut bool
	// VariablesSize, EntrypointSize and CmdSize are how many bytes these take where the runtime
	// describes a container, LabelsSize what the labels take that the runtime gives to it, and
	// VolumesSize what the mounts of the image's volumes take at most.
	VariablesSize, EntrypointSize, CmdSize, LabelsSize, VolumesSize int
}

// Contents returns what the image adds to a container of this configuration.
func (i Image) Contents(config *runtimeapi.ContainerConfig) nribound.Contents {
	contents := nribound.Contents{Variables: i.VariablesSize, Labels: i.LabelsSize, Mounts: i.VolumesSize}
	if len(config.GetCommand()) == 0 {
		contents.Args = i.EntrypointSize
		if len(config.GetArgs()) == 0 {
			contents.Args += i.CmdSize
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
	read.VariablesSize = nribound.SizeOfVariables(read.Variables)
	if memoryOf(read.Variables) > largestKept {
		read.Variables, read.VariablesLeftOut = nil, true
	}
	read.Variables = slices.Clip(read.Variables)
	maps.DeleteFunc(config.Labels, func(key, value string) bool { return len(key)+len(value) > maxLabel })
	sizes := nribound.ContainerContents(&api.Container{Labels: config.Labels, Args: config.Entrypoint})
	read.LabelsSize, read.EntrypointSize = sizes.Labels, sizes.Args
	read.CmdSize = nribound.ContainerContents(&api.Container{Args: config.Cmd}).Args
	read.VolumesSize = nribound.SizeOfVolumes(maps.Keys(config.Volumes))
	return read, nil
}

// memoryOf returns how many bytes of memory variables take, about.
func memoryOf(variables []*runtimeapi.KeyValue) (bytes int) {
	for _, variable := range variables {
		// A pointer, what it points to, and what the allocator rounds up.
		bytes += 128 + len(variable.GetKey()) + len(variable.GetValue())
	}
	return bytes
}
