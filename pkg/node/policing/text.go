// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policing

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// maxText is how long the message of an event may be, in bytes; the API server takes 1024.
const maxText = 1000

func short(text string) string { return truncate.Bytes(text, maxText) }

// text says how a container uses more than its share.
func (c *Controller) text(e exceeder, since time.Time) string {
	used, _ := e.Memory.Value()
	share, _ := e.Share.Value()
	text := fmt.Sprintf("container %q uses %s of the memory of %s, %s more than its share of %s", e.Name,
		grouptree.Human(used), e.what(), grouptree.Human(e.Exceeds()), grouptree.Human(share))
	if e.Contexts > 0 {
		text += fmt.Sprintf(" (%s for the contexts of its processes do not count)", grouptree.Human(e.Contexts))
	}
	return text + fmt.Sprintf(", since %s", since.UTC().Format(time.RFC3339))
}

// follows says what follows for a container after the event.
func follows(policy Policy) string {
	switch policy {
	case End:
		return "; the container is ended if the next reading shows the same"
	case Evict:
		return "; the pod is evicted if the next reading shows the same"
	}
	return "; nothing follows"
}

// neighbours says what is known of the containers that share a device with one that uses more than
// its share since a time. Containers in other namespaces than reader are counted, not named; all
// are named for the empty one. Whether a program failed to allocate memory, the driver does not
// report: what is known is that its container has ended with an error.
func (c *Controller) neighbours(e exceeder, since time.Time, reader string) string {
	var named []string
	others, unnamed := 0, 0
	seen := map[[2]string]bool{}
	for _, n := range e.device.Containers {
		key := [2]string{n.PodUID, n.Name}
		if !n.Holds || seen[key] || n.PodUID == e.PodUID && n.Name == e.Name {
			continue
		}
		seen[key] = true
		others++
		pod, _ := c.Pods.Get(n.PodUID)
		for _, failed := range pod.Failed {
			switch {
			case failed.Container != n.Name || failed.At.Before(since):
			case reader == "" || reader == n.Namespace:
				named = append(named, fmt.Sprintf("container %q of pod %s/%s (exit code %d)",
					n.Name, n.Namespace, n.Pod, failed.ExitCode))
			default:
				unnamed++
			}
		}
	}
	if others == 0 {
		return ""
	}
	if unnamed > 0 {
		named = append(named, fmt.Sprintf("%d in other namespaces", unnamed))
	}
	text := fmt.Sprintf("; %d other containers share the device", others)
	if others == 1 {
		text = "; 1 other container shares the device"
	}
	if free, known := e.free(); known {
		text += ", of which " + grouptree.Human(free) + " are free"
	}
	if len(named) == 0 {
		return text + ", and none has ended with an error since. The driver does not report allocations that failed"
	}
	return text + ". Ended with an error since, which may be an allocation that failed: " + strings.Join(named, ", ")
}

// free returns how much of the device's memory is free, in bytes.
func (e exceeder) free() (bytes int64, known bool) {
	total, totalKnown := e.device.MemoryTotal.Value()
	used, usedKnown := e.device.MemoryUsed.Value()
	return max(0, total-used), totalKnown && usedKnown
}
