// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images reads from the container runtime what images set in their containers, which the
// kubelet's requests do not have.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

const (
	// queryTimeout is how long the runtime may take to answer.
	queryTimeout = 5 * time.Second
	// queries is how many images the runtime is queried for at a time: an answer may take 16 MiB.
	queries = 4
	// kept is how many images are remembered, and largestKept how many bytes each may set: a larger
	// one is read for each of its containers, which are few.
	kept, largestKept = 256, 64 << 10
)

// Image is what an image sets in its containers. It is read only.
type Image struct {
	// Variables are in their order. Those without a value are left out: runtimes do not set them.
	Variables []*runtimeapi.KeyValue
	// EntrypointSize and CmdSize are how many bytes these take where the runtime describes a
	// container, LabelsSize what the labels take that the runtime gives to it, and VolumesSize what
	// the mounts of the image's volumes take at most.
	EntrypointSize, CmdSize, LabelsSize, VolumesSize int
}

// Contents returns what the image adds to a container of this configuration.
func (i Image) Contents(config *runtimeapi.ContainerConfig) nribound.Contents {
	contents := nribound.Contents{
		Variables: nribound.SizeOfVariables(i.Variables), Labels: i.LabelsSize, Mounts: i.VolumesSize,
	}
	if len(config.GetCommand()) == 0 {
		contents.Args = i.EntrypointSize
		if len(config.GetArgs()) == 0 {
			contents.Args += i.CmdSize
		}
	}
	return contents
}

// size returns how many bytes the image takes in memory, about.
func (i Image) size() int { return nribound.SizeOfVariables(i.Variables) }

// Cache knows images. The kubelet names an image by its ID, under which it never changes; anything
// else is not remembered. All methods are safe for concurrent use.
type Cache struct {
	client runtimeapi.ImageServiceClient
	slots  chan struct{} // for queries

	mu     sync.Mutex
	images map[string]Image
}

// NewCache returns a cache of the images of the runtime behind conn.
func NewCache(conn grpc.ClientConnInterface) *Cache {
	return &Cache{
		client: runtimeapi.NewImageServiceClient(conn), slots: make(chan struct{}, queries), images: map[string]Image{},
	}
}

// Image returns what an image sets. Its error has the code of the runtime's answer, such as
// ResourceExhausted where the description is too long to be read; see also [IsUndescribed].
func (c *Cache) Image(ctx context.Context, image *runtimeapi.ImageSpec) (Image, error) {
	c.mu.Lock()
	known, is := c.images[image.GetImage()]
	c.mu.Unlock()
	if is {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return Image{}, fmt.Errorf("image %s: %w", image.GetImage(), status.FromContextError(ctx.Err()).Err())
	}
	answer, err := c.client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: true})
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", image.GetImage(), err)
	}
	read, err := imageOf(answer)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", image.GetImage(), err)
	}
	if image.GetImage() != "" && image.GetImage() == answer.GetImage().GetId() && read.size() <= largestKept {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.images) >= kept {
			clear(c.images)
		}
		c.images[image.GetImage()] = read
	}
	return read, nil
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
			read.Variables = append(read.Variables, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
		}
	}
	read.Variables = slices.Clip(read.Variables)
	maps.DeleteFunc(config.Labels, func(key, value string) bool { return len(key)+len(value) > maxLabel })
	sizes := nribound.ContainerContents(&api.Container{Labels: config.Labels, Args: config.Entrypoint})
	read.LabelsSize, read.EntrypointSize = sizes.Labels, sizes.Args
	read.CmdSize = nribound.ContainerContents(&api.Container{Args: config.Cmd}).Args
	read.VolumesSize = nribound.SizeOfVolumes(maps.Keys(config.Volumes))
	return read, nil
}
