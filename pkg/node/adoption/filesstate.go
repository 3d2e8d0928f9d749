// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// filesState is the content of the state file of Files.
type filesState struct {
	Taken []types.ResourceName `json:"taken"` // from the kubelet
	// Devices are those of the plugin file that publishes a resource, or last did.
	Devices map[types.ResourceName][]types.ResourceName `json:"devices"`
	// Counts are how many it publishes, or last did.
	Counts map[types.ResourceName]int64 `json:"counts"`
}

// readFilesState reads the state file. A missing one is empty.
func readFilesState(state *statefile.File) (content filesState, err error) {
	err = state.Load(func(body []byte) error {
		content = filesState{}
		return json.Unmarshal(body, &content)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return filesState{}, fmt.Errorf("the resources that plugin files have taken over from the kubelet: %w", err)
	}
	return content, nil
}

// takenLocked is taken for a caller that holds mu.
func (f *Files) takenLocked() []types.ResourceName {
	taken := []types.ResourceName{}
	for name, claimed := range f.claims {
		if claimed.taken {
			taken = append(taken, name)
		}
	}
	slices.Sort(taken)
	return taken
}

// save saves the state, if it has changed. The caller holds mu.
func (f *Files) save(ctx context.Context) {
	content := filesState{Taken: f.takenLocked(), Devices: f.devices, Counts: f.counts}
	if err := f.state.Save(content); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot save which resources plugin files have taken over from the kubelet",
			logkey.File, f.state.Path)
	}
}
