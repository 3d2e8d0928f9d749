// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// What a pod that requests devices may have at most. Reading it, and handing it to plugins, takes
// as long for everybody who waits behind it: with this much, some milliseconds once.
const (
	// MaxRequestBytes is the longest annotation of a pod that is not bound: requests for 64 GPUs
	// in groups take 6 KiB.
	MaxRequestBytes = 32 << 10
	// MaxPodContainers is the number of its containers, those included that request nothing.
	MaxPodContainers = 256
)

// CheckSize returns an error for a pod that requests devices and is too large: one of so many
// containers, init containers included, with this annotation.
func CheckSize(containers int, annotation string) error {
	if containers > MaxPodContainers {
		return fmt.Errorf("the pod requests devices and has %d containers, more than %d: make several pods of it",
			containers, MaxPodContainers)
	}
	if len(annotation) > MaxRequestBytes {
		return fmt.Errorf("annotation %s is %d bytes long, a pod may request devices in %d at most: request fewer, "+
			"in fewer containers, or use shorter names", deviceinfo.Annotation, len(annotation), MaxRequestBytes)
	}
	return nil
}

// CheckRequests returns the error of CheckCounts, or the first of Errors.
func CheckRequests(written *types.PodInfo) error {
	if err := CheckCounts(written); err != nil {
		return err
	}
	if errs := Errors(written); len(errs) > 0 {
		return &errs[0]
	}
	return nil
}

// CheckCounts checks the number of requests and of containers with requests.
func CheckCounts(written *types.PodInfo) error {
	requests, containers := len(written.Requests), 0
	for _, list := range []map[string]types.ContainerInfo{written.InitContainers, written.RunningContainers} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if len(list[name].Requests) == 0 {
				continue
			}
			containers++
			if requests += len(list[name].Requests); requests > grouptree.MaxRequests {
				return fmt.Errorf("annotation %s: container %q: the pod makes more than %d device requests: "+
					"request fewer", deviceinfo.Annotation, name, grouptree.MaxRequests)
			}
			if containers > grouptree.MaxContainers {
				return fmt.Errorf("annotation %s: container %q: more than %d containers of the pod request devices: "+
					"request them in fewer containers", deviceinfo.Annotation, name, grouptree.MaxContainers)
			}
		}
	}
	return nil
}

// Allocates reports whether the annotation of a pod that is not bound has what only the scheduler
// may write.
func Allocates(written *types.PodInfo) bool {
	for _, container := range written.Containers() {
		if len(container.DevRequests)+len(container.AllocateFrom) > 0 {
			return true
		}
	}
	return written.NodeName != ""
}

// reserved is what the policy kubedevice-pod-allocations refuses in the annotation of a pod that
// anyone but the scheduler writes.
var reserved = regexp.MustCompile(`(?i)\\|devrequests|allocatefrom|nodename`)

// Reserved returns where an annotation has words that only the scheduler may write, or a backslash,
// with which they could be spelled differently: begin and end in bytes.
func Reserved(annotation string) [][]int { return reserved.FindAllStringIndex(annotation, -1) }
