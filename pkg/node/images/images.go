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
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// queryLimit is how long the runtime may take to answer.
	queryLimit = 5 * time.Second
	// kept is how many images are remembered.
	kept = 256
)

// Cache knows the variables of images. The kubelet names an image by its ID, under which it never
// changes; anything else is not remembered. All methods are safe for concurrent use.
type Cache struct {
	client runtimeapi.ImageServiceClient

	mu     sync.Mutex
	images map[string][]*runtimeapi.KeyValue
}

// NewCache returns a cache of the images of the runtime behind conn.
func NewCache(conn grpc.ClientConnInterface) *Cache {
	return &Cache{client: runtimeapi.NewImageServiceClient(conn), images: map[string][]*runtimeapi.KeyValue{}}
}

// Variables returns the variables of the image in their order, those that have no value left out:
// runtimes do not set them. They are read only.
func (c *Cache) Variables(ctx context.Context, image *runtimeapi.ImageSpec) ([]*runtimeapi.KeyValue, error) {
	c.mu.Lock()
	known, is := c.images[image.GetImage()]
	c.mu.Unlock()
	if is {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	status, err := c.client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image.GetImage(), err)
	}
	env, err := envOf(status)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image.GetImage(), err)
	}
	if image.GetImage() != "" && image.GetImage() == status.GetImage().GetId() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.images) >= kept {
			clear(c.images)
		}
		c.images[image.GetImage()] = env
	}
	return env, nil
}

// errNoConfig is why nothing is known of an image.
var errNoConfig = errors.New("the container runtime does not say what the image's configuration is (imageSpec in " +
	"its verbose status of the image)")

// envOf reads the configuration that containerd and CRI-O give with a verbose status.
func envOf(status *runtimeapi.ImageStatusResponse) ([]*runtimeapi.KeyValue, error) {
	if status.GetImage() == nil {
		return nil, errors.New("the container runtime does not have the image")
	}
	var info struct {
		ImageSpec *struct {
			Config struct{ Env []string } `json:"config"`
		} `json:"imageSpec"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil || info.ImageSpec == nil {
		return nil, errNoConfig
	}
	var env []*runtimeapi.KeyValue
	for _, entry := range info.ImageSpec.Config.Env {
		if name, value, hasValue := strings.Cut(entry, "="); hasValue {
			env = append(env, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
		}
	}
	return slices.Clip(env), nil
}
