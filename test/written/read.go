// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package written

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// Pod is what a pod requests, as its manifest says.
type Pod struct {
	containers map[string]*container
	unserved   []string // requests that no plugin of the test serves
	mistakes   []string // what has no effect, or an unverified one
	options    []string // which request no device by themselves: a pod with nothing else waits
	malformed  string   // why the annotation as a whole cannot be read
}

// container is what one container requests.
type container struct {
	count int64            // of GPUs, in limits and annotation
	paths map[string]int64 // quantities, by paths without resource/group
}

// Read reads the manifest of a pod that RandomPod has made, or ends the test.
func Read(t testing.TB, pod *corev1.Pod) *Pod {
	t.Helper()
	w := &Pod{containers: map[string]*container{}}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			limit := c.Resources.Limits[corev1.ResourceName(gpu.Resource)]
			w.containers[c.Name] = &container{count: limit.Value(), paths: map[string]int64{}}
		}
	}
	text := pod.Annotations[deviceinfo.Annotation]
	if text == "" {
		return w
	}
	var fields map[string]json.RawMessage
	unmarshal(t, []byte(text), &fields)
	for field, value := range fields {
		switch field {
		case "initcontainer", "runningcontainer":
			var containers map[string]map[string]json.RawMessage
			unmarshal(t, value, &containers)
			for name, parts := range containers {
				for part, requests := range parts {
					if part != "requests" {
						w.mistakes = append(w.mistakes, part)
						continue
					}
					w.read(t, requests, w.containers[name])
				}
			}
		case "requests":
			w.read(t, value, nil)
		default:
			w.mistakes = append(w.mistakes, field)
		}
	}
	return w
}

func unmarshal(t testing.TB, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// read reads the requests of a container, or those of the pod as a whole.
func (w *Pod) read(t testing.TB, text json.RawMessage, container *container) {
	t.Helper()
	var requests map[string]any
	unmarshal(t, text, &requests)
	for name, value := range requests {
		quantity, ok := bytesOf(value)
		if !ok {
			w.malformed = name
			w.unserved = append(w.unserved, name)
			continue
		}
		path := strings.TrimPrefix(name, "resource/group/")
		segments := strings.Split(path, "/")
		switch {
		case name == "gpu/gpu-generate-topology" && quantity < 2:
			w.options = append(w.options, name)
		case name == "gpu/gpu-generate-topology":
			w.unserved = append(w.unserved, name)
		case name == "nvidia.com/gpu" && quantity > 0 && container != nil:
			container.count = max(container.count, quantity)
		case len(segments) == 2 && strings.HasPrefix(segments[0], "gpu"):
			w.mistakes, w.options = append(w.mistakes, name), append(w.options, name)
		case quantity == 0 || strings.Contains(path, "/="):
			w.unserved = append(w.unserved, name)
		case len(segments)%2 == 0 || container == nil || segments[len(segments)-3] != "gpu":
			w.unserved = append(w.unserved, name)
		default:
			container.paths[path] = quantity
			if segments[len(segments)-1] == "memory" && quantity < 1<<20 {
				w.mistakes = append(w.mistakes, name)
			}
		}
	}
}

// bytesOf reads a number, or a quantity in one of the units that the test writes.
func bytesOf(value any) (int64, bool) {
	if number, ok := value.(float64); ok {
		return int64(number), true
	}
	for unit, factor := range map[string]int64{"Gi": 1 << 30, "Mi": 1 << 20} {
		var number int64
		text, found := strings.CutSuffix(value.(string), unit)
		if _, err := fmt.Sscan(text, &number); found && err == nil {
			return number * factor, true
		}
	}
	return 0, false
}

// enough is how many GPUs a node has for a pod in any case when its 8 GPUs are free, in groups of
// two or of four: no request is for more than two GPUs of one group.
const enough = 4

// Missing returns names of which the event on a pod that waits has one. There is none for a pod
// that must not wait.
func (w *Pod) Missing() []string {
	gpus := int64(0)
	for _, container := range w.containers {
		gpus += container.gpus()
	}
	switch {
	case len(w.unserved) > 0:
		return w.unserved
	case gpus == 0:
		return w.options
	case gpus > enough:
		return []string{"GPU", "NVLink", string(gpu.Resource)}
	default:
		return nil
	}
}

// GPUs returns how many GPUs a container of that name has, at least and at most. Shares of memory
// may be of one GPU.
func (w *Pod) GPUs(name string) (least, most int) {
	c, whole := w.containers[name], 0
	for path := range c.paths {
		if strings.HasSuffix(path, "/cards") {
			whole++
		}
	}
	return max(int(c.count), whole), int(c.gpus())
}

// gpus returns how many GPUs a container uses at most.
func (c *container) gpus() int64 {
	gpus := map[string]bool{}
	for path := range c.paths {
		gpus[path[:strings.LastIndexByte(path, '/')]] = true
	}
	return max(c.count, int64(len(gpus)))
}

// Mistakes returns the names that an event on the pod must have: those that have no effect, or an
// unverified one. An annotation that cannot be read as a whole has none.
func (w *Pod) Mistakes() []string {
	if w.malformed != "" {
		return nil
	}
	return w.mistakes
}

// Differences returns what the allocation of a bound pod has otherwise than written.
func (w *Pod) Differences(pod *corev1.Pod) (found []string) {
	if len(w.unserved) > 0 {
		found = append(found, fmt.Sprintf("%q were dropped", w.unserved))
	}
	info := &allocatedInfo{}
	if text := pod.Annotations[deviceinfo.Annotation]; text != "" {
		if err := json.Unmarshal([]byte(text), info); err != nil {
			return append(found, err.Error())
		}
	}
	for name, container := range w.containers {
		has := info.RunningContainer[name]
		if init, ok := info.InitContainer[name]; ok {
			has = init
		}
		for _, difference := range container.differences(has) {
			found = append(found, fmt.Sprintf("container %s: %s", name, difference))
		}
	}
	return found
}

// allocatedInfo is the annotation of a bound pod, as published.
type allocatedInfo struct {
	InitContainer, RunningContainer map[string]allocatedContainer
}

type allocatedContainer struct {
	DevRequests  map[string]int64
	AllocateFrom map[string]string
}

// differences returns what the container has otherwise than written.
func (c *container) differences(has allocatedContainer) (found []string) {
	gpus, cards := map[string]bool{}, int64(0) // that are written
	instances := map[string]string{}           // by the placeholder's path, in what was allocated
	for path, quantity := range c.paths {
		if strings.HasSuffix(path, "/cards") {
			cards += quantity
		}
		gpus[path[:strings.LastIndexByte(path, '/')]] = true
		request := has.find(path, quantity)
		if request == "" {
			found = append(found, fmt.Sprintf("%s: %d is not allocated", path, quantity))
			continue
		}
		for placeholder, instance := range placed(path, has.AllocateFrom[request]) {
			if other, ok := instances[placeholder]; ok && other != instance {
				found = append(found, fmt.Sprintf("%s is %s and %s", placeholder, instance, other))
			}
			instances[placeholder] = instance
		}
	}
	for a, instance := range instances {
		for b, other := range instances {
			if a < b && isApart(a) && isApart(b) && level(a) == level(b) && instance == other {
				found = append(found, fmt.Sprintf("%s and %s are both %s", a, b, instance))
			}
		}
	}
	wanted, allocated := cards+max(0, c.count-int64(len(gpus))), int64(0)
	held := map[string]bool{} // GPUs
	for request, quantity := range has.DevRequests {
		device := has.AllocateFrom[request]
		held[device[:strings.LastIndexByte(device, '/')+1]] = true
		if strings.HasSuffix(device, "/cards") {
			allocated += quantity
		}
	}
	if int64(len(held)) < c.count {
		found = append(found, fmt.Sprintf("it has %d GPUs and counts %d", len(held), c.count))
	}
	if allocated != wanted {
		found = append(found, fmt.Sprintf("it has %d cards, want %d", allocated, wanted))
	}
	return found
}

// find returns the device request of that quantity that has all segments of a path in their order.
// Placeholders may be marked as different, unless one has the path as it is written: A and !A are
// two placeholders where a container has both.
func (c allocatedContainer) find(path string, quantity int64) string {
	unmarked := func(segment string) string { return strings.TrimLeft(segment, "!") }
	for _, name := range []func(string) string{strings.Clone, unmarked} {
		for request, allocated := range c.DevRequests {
			rest := strings.Split(path, "/")
			for segment := range strings.SplitSeq(request, "/") {
				if len(rest) > 0 && name(segment) == name(rest[0]) {
					rest = rest[1:]
				}
			}
			if len(rest) == 0 && allocated == quantity && c.AllocateFrom[request] != "" {
				return request
			}
		}
	}
	return ""
}

// placed returns the instance that each placeholder of a path stands for in the name of a device.
func placed(path, device string) map[string]string {
	instances := map[string]string{}
	segments, has := strings.Split(path, "/"), strings.Split(device, "/")
	for i := 0; i+1 < len(segments); i += 2 {
		at := slices.Index(has, segments[i])
		if at >= 0 && at+1 < len(has) {
			instances[strings.Join(segments[:i+2], "/")] = strings.Join(has[:at+2], "/")
		}
	}
	return instances
}

// isApart reports whether a placeholder must differ from others, and level returns its level.
func isApart(placeholder string) bool {
	return strings.HasPrefix(placeholder[strings.LastIndexByte(placeholder, '/')+1:], "!")
}

func level(placeholder string) string {
	segments := strings.Split(placeholder, "/")
	return segments[len(segments)-2]
}
