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
	"os"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"k8s.io/klog/v2"
)

// settleTime is how long changes are collected before the file is written. What is lost in between costs a pod that was
// created meanwhile a wait for the API server, nothing else.
const settleTime = time.Second

// remembered is the file's content.
type remembered struct {
	Resources []string       `json:"resources"`
	Told      bool           `json:"told"`
	Pods      map[string]Pod `json:"pods"`
}

// Load fills the registry from the file that KeepSaved wrote. A file that does not exist is empty. A pod whose containers an
// earlier release did not write down is left for the API server to tell.
func (r *Registry) Load(path string) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remembered pods: %w", err)
	}
	if err := r.remember(raw); err != nil {
		return fmt.Errorf("remembered pods: %s: %w; it is written anew when the API server has listed the pods", path, err)
	}
	return nil
}

func (r *Registry) remember(raw []byte) error {
	var content remembered
	if err := json.Unmarshal(raw, &content); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, pod := range content.Pods {
		if len(pod.Containers) > 0 {
			r.pods[uid] = pod
		}
	}
	for _, name := range content.Resources {
		r.resources[name] = true
	}
	r.told = content.Told
	r.wake()
	return nil
}

// KeepSaved writes the registry to the file, soon after each change, until ctx is done, and then once more.
func (r *Registry) KeepSaved(ctx context.Context, path string) {
	logger := klog.FromContext(ctx)
	var saved []byte
	save := func() <-chan struct{} {
		content, changed := r.content()
		raw, err := json.Marshal(content)
		if err == nil && !slices.Equal(raw, saved) {
			err = renameio.WriteFile(path, raw, 0o600)
		}
		if err != nil {
			logger.Error(err, "Cannot remember the node's pods across a restart", "file", path)
		} else {
			saved = raw
		}
		return changed
	}
	for {
		select {
		case <-save():
		case <-ctx.Done():
			save() // a change may have come at the same moment
			return
		}
		timer := time.NewTimer(settleTime)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			save()
			return
		}
	}
}

func (r *Registry) content() (remembered, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	content := remembered{Pods: map[string]Pod{}, Resources: slices.Sorted(maps.Keys(r.resources)), Told: r.told}
	for uid, pod := range r.pods {
		if _, gone := r.gone[uid]; !gone {
			content.Pods[uid] = pod
		}
	}
	return content, r.changed
}
