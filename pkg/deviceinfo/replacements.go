// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"slices"

	apitypes "k8s.io/apimachinery/pkg/types"
)

// ReplacementsAnnotation is the key of the annotation in which a node requests other devices from
// the scheduler, for containers with unhealthy devices in pods with the policy Replace. It applies
// to pods that are bound to the node. A node without requests has no such annotation.
const ReplacementsAnnotation = "KubeDevice/Replacements"

// MaxReplacementsBytes is the largest value of [ReplacementsAnnotation]: some 200 pods. Other pods
// wait.
const MaxReplacementsBytes = 32 << 10

// replacementsVersion is the version of the annotation's form. A reader ignores other versions.
const replacementsVersion = 1

// Replacement is a pod for which a node requests other devices.
type Replacement struct {
	// UID identifies the pod.
	UID apitypes.UID `json:"uid"`
	// Generation is the generation of the pod's last allocation that the node has seen. The node
	// needs an allocation of a higher generation.
	Generation int64 `json:"generation"`
	// Refused says that the node could not use that allocation: its devices for these containers
	// are no answer.
	Refused bool `json:"refused,omitempty"`
	// Containers are the names of the containers, sorted. All other containers keep their devices.
	Containers []string `json:"containers"`
}

// replacements is the annotation.
type replacements struct {
	Version int           `json:"version"`
	Pods    []Replacement `json:"pods"`
}

// EncodeReplacements writes the annotation KubeDevice/Replacements: as many pods as fit into limit
// bytes, in the order of the list. It is empty for none.
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

// DecodeReplacements reads the annotation KubeDevice/Replacements. It ignores unknown fields, and
// all of a value of another version. An empty value has no requests.
func DecodeReplacements(value string) ([]Replacement, error) {
	if value == "" {
		return nil, nil
	}
	if len(value) > MaxReplacementsBytes {
		return nil, fmt.Errorf("annotation %s has %d bytes, more than %d", ReplacementsAnnotation, len(value),
			MaxReplacementsBytes)
	}
	var header struct{ Version int }
	if err := json.Unmarshal([]byte(value), &header); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", ReplacementsAnnotation, err)
	}
	if header.Version != replacementsVersion {
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
