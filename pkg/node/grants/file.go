// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"encoding/json"
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
)

// content is the JSON of the checkpoint.
type content struct {
	Allocations []Allocation `json:"grants"`
}

// legacyResponses are the cached responses that earlier releases wrote along with each allocation.
type legacyResponses struct {
	Grants []struct {
		PodUID    string    `json:"podUID"`
		Responses responses `json:"answers"`
		Boot      string    `json:"boot"`
	} `json:"grants"`
}

func fileAt(path string) *statefile.File {
	return &statefile.File{Path: path, Kind: "grants", Failpoints: true}
}

// Read returns the allocations in the checkpoint at path, sorted by pod. The error of a file that
// does not exist wraps fs.ErrNotExist, that of a corrupt one statefile.ErrCorrupt.
func Read(path string) (list []Allocation, err error) {
	err = fileAt(path).Read(func(body []byte) (err error) {
		list, err = decode(body)
		return err
	})
	return list, err
}

func decode(body []byte) ([]Allocation, error) {
	var c content
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, a := range c.Allocations {
		if a.PodUID == "" || a.PodInfo == nil || seen[a.PodUID] {
			return nil, fmt.Errorf("the allocation of pod %s (UID %q) is incomplete or listed twice", a.Pod(), a.PodUID)
		}
		seen[a.PodUID] = true
		// The same limits as for the annotation that it came from.
		if _, err := deviceinfo.EncodePod(a.PodInfo); err != nil {
			return nil, fmt.Errorf("the allocation of pod %s: %w", a.Pod(), err)
		}
	}
	return c.Allocations, nil
}

// decodeLegacyResponses returns the cached responses in a checkpoint that an earlier release wrote
// in this boot, by pod UID. This release writes none there, so they are newer than those in its own
// file.
func decodeLegacyResponses(body []byte, boot string) (map[string]responses, error) {
	var c legacyResponses
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, err
	}
	found := map[string]responses{}
	for _, grant := range c.Grants {
		if grant.Boot == boot && len(grant.Responses) > 0 {
			found[grant.PodUID] = grant.Responses
		}
	}
	return found, nil
}
