// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/statefile"
)

// responsesName is the name of the file of cached responses, in the checkpoint's directory.
const responsesName = "allocate-responses"

// maxResponse is the size of the largest response that is cached, in bytes. The file has all
// responses of the node's pods, and is written with each of them; those of device plugins have some
// hundred bytes.
const maxResponse = 64 << 10

// ErrNotGranted is wrapped by the error of Put for a pod that holds nothing, or nothing any more.
var ErrNotGranted = errors.New("the pod holds no devices of this node")

// responses are those for the containers of one pod: opaque bytes, by the container's name and a
// key that the caller chooses.
type responses map[string]map[string][]byte

// ResponseCache keeps what kubelet device plugins answered to Allocate, so that a container that is
// created again is given the same. A response is kept as long as the pod is in the checkpoint and
// the machine is not rebooted: after that, device nodes may have other numbers, and files that a
// plugin made in memory as it answered are gone. A response that is lost, with its file, is
// requested again.
//
// The methods are safe for concurrent use.
type ResponseCache struct {
	file    *statefile.File
	boot    string
	holders holders

	changing sync.Mutex // held to replace pods, while the file is written
	mu       sync.Mutex // held only to read or set pods
	pods     map[string]responses
}

// cachedResponses is the JSON of the file. Its responses do not count in another boot of the
// machine.
type cachedResponses struct {
	Boot string               `json:"boot"`
	Pods map[string]responses `json:"pods"`
}

// holders knows which pods hold devices. *Checkpoint implements it.
type holders interface {
	// Has reports whether the pod holds devices.
	Has(podUID string) bool
}

func newResponseCache(directory, boot string, holders holders) *ResponseCache {
	path := filepath.Join(directory, responsesName)
	return &ResponseCache{file: &statefile.File{Path: path, Kind: responsesName}, boot: boot, holders: holders}
}

// load reads the file, and takes over newer responses. An error is that these cannot be saved.
func (c *ResponseCache) load(ctx context.Context, newer map[string]responses) error {
	var read cachedResponses
	err := c.file.Load(func(body []byte) error { return json.Unmarshal(body, &read) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).
			Error(err, "The cached responses of device plugins are lost; the plugins are called again")
	}
	pods := map[string]responses{}
	if err == nil && read.Boot == c.boot {
		maps.Copy(pods, read.Pods)
	}
	maps.Copy(pods, newer)
	c.set(pods)
	if len(newer) == 0 {
		return nil
	}
	return c.file.Save(cachedResponses{c.boot, pods})
}

// current returns the responses by pod UID, which must not be changed.
func (c *ResponseCache) current() map[string]responses {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods
}

func (c *ResponseCache) set(pods map[string]responses) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = pods
}

// replace makes the pod's responses those, and drops those of pods that are gone. The caller holds
// changing.
func (c *ResponseCache) replace(podUID string, own responses) error {
	next := maps.Clone(c.current())
	if next == nil {
		next = map[string]responses{}
	}
	next[podUID] = own
	maps.DeleteFunc(next, func(uid string, kept responses) bool { return len(kept) == 0 || !c.holders.Has(uid) })
	if err := c.file.Save(cachedResponses{c.boot, next}); err != nil {
		return fmt.Errorf("write the cached responses of device plugins: %w", err)
	}
	c.set(next)
	return nil
}

// Get returns the response that is cached for the pod's container under the key, if there is one.
// It must not be changed.
func (c *ResponseCache) Get(podUID, container, key string) (response []byte, cached bool) {
	response, cached = c.current()[podUID][container][key]
	return response, cached && c.holders.Has(podUID)
}

// Put caches the response for the pod's container under the key unless there is one, and returns
// the cached one, which must not be changed: of two that come at the same time, the first counts
// for both. When it returns, the response survives a power failure. After an error, nothing is
// cached and the response must not be used.
func (c *ResponseCache) Put(podUID, container, key string, response []byte) (cached []byte, err error) {
	what := fmt.Sprintf("cache the response of %s for container %q of the pod with UID %q", key, container, podUID)
	if len(response) > maxResponse {
		return nil, fmt.Errorf("%s: it has %d bytes, at most %d are cached", what, len(response), maxResponse)
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	if !c.holders.Has(podUID) {
		return nil, fmt.Errorf("%s: %w", what, ErrNotGranted)
	}
	if before, ok := c.Get(podUID, container, key); ok {
		return before, nil
	}
	own := responses{}
	maps.Copy(own, c.current()[podUID])
	own[container] = map[string][]byte{}
	maps.Copy(own[container], c.current()[podUID][container])
	// Not nil, which JSON cannot tell from an empty one.
	own[container][key] = append([]byte{}, response...)
	if err := c.replace(podUID, own); err != nil {
		return nil, err
	}
	return own[container][key], nil
}

// Drop drops the responses for the pod's container, which turned out to be of no use, and reports
// whether there were any. They are requested again then.
func (c *ResponseCache) Drop(podUID, container string) (dropped bool, err error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	own := maps.Clone(c.current()[podUID])
	if len(own[container]) == 0 {
		return false, nil
	}
	delete(own, container)
	return true, c.replace(podUID, own)
}
