// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"slices"

	apitypes "k8s.io/apimachinery/pkg/types"
)

// ReplacementsAnnotation is the key of the annotation in which a node asks the scheduler for other
// devices, for containers whose devices are unhealthy and whose pods want that. It counts for pods
// that are bound to the node. A node that asks for nothing has no such annotation.
const ReplacementsAnnotation = "KubeDevice/Replacements"

// MaxReplacementsBytes is the largest value of [ReplacementsAnnotation]: some 200 pods. The others
// wait.
const MaxReplacementsBytes = 32 << 10

// replacementsVersion is the version of the annotation's form. A reader ignores another one.
const replacementsVersion = 1

// Replacement is a pod for which a node asks for other devices.
type Replacement struct {
	// UID identifies the pod.
	UID apitypes.UID `json:"uid"`
	// Generation is that of the latest allocation of the pod that the node has seen. One that the
	// node can use has a higher one.
	Generation int64 `json:"generation"`
	// Refused says that the node could not use that one: the devices that it names for the
	// containers are no answer.
	Refused bool `json:"refused,omitempty"`
	// Containers are the names of the containers, sorted. All other containers keep what they have.
	Containers []string `json:"containers"`
}

// replacements is the annotation.
type replacements struct {
	Version int           `json:"version"`
	Pods    []Replacement `json:"pods"`
}

// EncodeReplacements writes the annotation KubeDevice/Replacements: as many pods as fit into so
// many bytes, in the order of the list. It is empty for none.
func EncodeReplacements(list []Replacement, limit int) string {
	all := replacements{Version: replacementsVersion}
	size := len(`{"version":1,"pods":[]}`)
	for _, pod := range list {
		text, err := encode(pod)
		if err != nil || size+len(text)+len(",") > min(limit, MaxReplacementsBytes) {
			break
		}
		size += len(text) + len(",")
		all.Pods = append(all.Pods, pod)
	}
	if len(all.Pods) == 0 {
		return ""
	}
	value, err := encode(all)
	if err != nil {
		return ""
	}
	return value
}

// DecodeReplacements reads the annotation KubeDevice/Replacements. Fields that are unknown are
// ignored, and so is all of a value of another version. An empty value asks for nothing.
func DecodeReplacements(value string) ([]Replacement, error) {
	if value == "" {
		return nil, nil
	}
	if len(value) > MaxReplacementsBytes {
		return nil, fmt.Errorf("annotation %s has %d bytes, more than %d", ReplacementsAnnotation, len(value),
			MaxReplacementsBytes)
	}
	var of struct{ Version int }
	if err := json.Unmarshal([]byte(value), &of); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", ReplacementsAnnotation, err)
	}
	if of.Version != replacementsVersion {
		return nil, nil
	}
	var all replacements
	if err := json.Unmarshal([]byte(value), &all); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", ReplacementsAnnotation, err)
	}
	seen := map[apitypes.UID]bool{}
	for i, pod := range all.Pods {
		switch {
		case pod.UID == "" || len(pod.Containers) == 0 || slices.Contains(pod.Containers, ""):
			return nil, fmt.Errorf("annotation %s: entry %d lacks its uid or its containers", ReplacementsAnnotation, i)
		case pod.Generation < 0:
			return nil, fmt.Errorf("annotation %s: entry %d has the generation %d", ReplacementsAnnotation, i,
				pod.Generation)
		case seen[pod.UID]:
			return nil, fmt.Errorf("annotation %s: the pod %q is listed twice", ReplacementsAnnotation, pod.UID)
		}
		seen[pod.UID] = true
	}
	return all.Pods, nil
}
