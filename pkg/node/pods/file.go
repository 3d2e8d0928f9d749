// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// saveDelay is how long KeepSaved collects changes before it writes the file. A lost change only
// makes a pod created in the meantime wait for the API server.
const saveDelay = time.Second

// savedPods is the file's content.
type savedPods struct {
	Resources []types.ResourceName `json:"resources"`
	AllKnown  bool                 `json:"told"`
	Pods      map[string]Pod       `json:"pods"`
}

func fileAt(path string) *statefile.File {
	return &statefile.File{Path: path, Kind: "pods", Legacy: path + ".json"}
}

// Load fills the registry from the file of KeepSaved. A missing file counts as empty.
func (r *Registry) Load(path string) error {
	err := fileAt(path).Load(r.remember)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remembered pods: %w; the API server lists them again", err)
	}
	return nil
}

// remember adds a file's content to the registry. A pod without containers, from the file of an
// earlier release, stays unknown until the API server lists it.
func (r *Registry) remember(body []byte) error {
	var content savedPods
	if err := json.Unmarshal(body, &content); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, pod := range content.Pods {
		if len(pod.Containers) > 0 {
			r.pods[uid] = pod
		}
	}
	r.setResources(nil, content.Resources, content.AllKnown)
	r.notify()
	return nil
}

// KeepSaved writes the registry to the file soon after each change until ctx is done, and once at
// the end.
func (r *Registry) KeepSaved(ctx context.Context, path string) {
	file := fileAt(path)
	save := func() (changed <-chan struct{}) {
		content, changed := r.content()
		if err := file.Save(content); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot save the node's pods", logkey.File, path)
		}
		return changed
	}
	defer save()
	for {
		select {
		case <-save():
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(saveDelay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (r *Registry) content() (savedPods, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	content := savedPods{
		Pods:      map[string]Pod{},
		Resources: slices.Sorted(maps.Keys(r.resources)),
		AllKnown:  r.allKnown,
	}
	for uid, pod := range r.pods {
		if _, gone := r.gone[uid]; !gone {
			content.Pods[uid] = pod
		}
	}
	return content, r.changed
}
