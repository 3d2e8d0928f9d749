// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/cache"
)

const (
	// queryTimeout is how long it may take to read an image.
	queryTimeout = 5 * time.Second
	// kept is how many images are remembered. Of each, the variables take largestKept bytes at
	// most, and the rest a few hundred: together 17 MiB.
	kept = 256
	// failureKept is how long it is remembered that the runtime cannot describe an image at all.
	failureKept = time.Minute
)

// An answer takes up to 16 MiB, the most that runtimes send, several times while it is decoded:
// most of that is the image's history, which a tenant may make as long. So images whose answers are
// long are read one at a time, and others do not wait for them.
const (
	// shortQueries is how many images the runtime is queried for at a time, with answers of
	// shortAnswer bytes at most.
	shortQueries, shortAnswer = 4, 1 << 20
	// longQueries is how many are read at a time whose answers are longer.
	longQueries = 1
)

// Cache knows images. The kubelet names an image by its ID, under which it never changes; anything
// else is not remembered. An image is read once, however many containers wait for it. All methods
// are safe for concurrent use.
type Cache struct {
	client      runtimeapi.ImageServiceClient
	short, long chan struct{} // for queries

	reading singleflight.Group // by the name of the image
	images  *cache.Cache[string, result]
	isLong  *cache.Cache[string, bool] // true for images whose answers are longer than shortAnswer
}

// result is what was read of an image, or why it cannot be read, which holds until it expires.
type result struct {
	image   Image
	err     error
	expires time.Time
}

// NewCache returns a cache of the images of the runtime behind conn.
func NewCache(conn grpc.ClientConnInterface) *Cache {
	return &Cache{
		client: runtimeapi.NewImageServiceClient(conn),
		short:  make(chan struct{}, shortQueries), long: make(chan struct{}, longQueries),
		images: cache.New[string, result](kept), isLong: cache.New[string, bool](kept),
	}
}

// Image returns what an image sets. Its error has the code of the runtime's answer, such as
// ResourceExhausted where the description is too long for the runtime to send, and DeadlineExceeded
// if it takes more than 5 seconds to read it; see also [IsUndescribed].
func (c *Cache) Image(ctx context.Context, image *runtimeapi.ImageSpec) (Image, error) {
	if known, ok := c.known(image); ok {
		return known.image, known.err
	}
	read := c.reading.DoChan(image.GetImage(), func() (any, error) {
		// Others may wait for it when this caller does not any more.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
		defer cancel()
		return c.read(ctx, image)
	})
	select {
	case got := <-read:
		image, _ := got.Val.(Image)
		return image, got.Err
	case <-ctx.Done():
		return Image{}, fmt.Errorf("image %s: %w", image.GetImage(), status.FromContextError(ctx.Err()).Err())
	}
}

// known returns what is remembered of an image.
func (c *Cache) known(image *runtimeapi.ImageSpec) (known result, ok bool) {
	known, ok = c.images.Get(image.GetImage())
	return known, ok && (known.err == nil || time.Now().Before(known.expires))
}

// read reads an image and remembers it.
func (c *Cache) read(ctx context.Context, image *runtimeapi.ImageSpec) (Image, error) {
	if known, ok := c.known(image); ok { // since the caller has looked
		return known.image, known.err
	}
	read, id, err := c.readAny(ctx, image)
	name := image.GetImage()
	if err != nil {
		err = fmt.Errorf("image %s: %w", name, err)
	}
	switch {
	case err == nil && name != "" && name == id:
		c.images.Add(name, result{image: read})
	case status.Code(err) == codes.ResourceExhausted:
		c.images.Add(name, result{err: err, expires: time.Now().Add(failureKept)})
	}
	return read, err
}

// readAny reads an image whose answer is short or long.
func (c *Cache) readAny(ctx context.Context, image *runtimeapi.ImageSpec) (read Image, id string, err error) {
	if long, _ := c.isLong.Get(image.GetImage()); long { // it has not been read in time, maybe
		return c.query(ctx, c.long, image)
	}
	read, id, err = c.query(ctx, c.short, image, grpc.MaxCallRecvMsgSize(shortAnswer))
	if status.Code(err) != codes.ResourceExhausted {
		return read, id, err
	}
	c.isLong.Add(image.GetImage(), true)
	return c.query(ctx, c.long, image)
}

// query reads an image from the runtime, in one of the slots. id is the image's.
func (c *Cache) query(
	ctx context.Context, slots chan struct{}, image *runtimeapi.ImageSpec, options ...grpc.CallOption,
) (read Image, id string, err error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return Image{}, "", status.FromContextError(ctx.Err()).Err()
	}
	answer, err := c.client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: true}, options...)
	if err != nil {
		return Image{}, "", err
	}
	read, err = imageOf(answer)
	return read, answer.GetImage().GetId(), err
}
