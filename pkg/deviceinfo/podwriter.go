// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"maps"
	"slices"
	"strconv"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// podWriter writes a valid pod as encode does, without reflection: the scheduler writes each pod
// while the next one waits. It escapes nothing, as names are their own JSON.
type podWriter []byte

func (w *podWriter) pod(pod *types.PodInfo) {
	w.open()
	w.field("podname", pod.Name)
	w.field("nodename", pod.NodeName)
	writeQuantities(w, "requests", pod.Requests)
	w.containers("initcontainer", pod.InitContainers)
	w.containers("runningcontainer", pod.RunningContainers)
	w.close()
}

func (w *podWriter) containers(key string, containers map[string]types.ContainerInfo) {
	writeMap(w, key, containers, func(info types.ContainerInfo) {
		w.open()
		writeQuantities(w, "requests", info.Requests)
		writeQuantities(w, "devrequests", info.DevRequests)
		writeMap(w, "allocatefrom", info.AllocateFrom, func(from types.ResourceName) { w.quote(string(from)) })
		writeQuantities(w, "scorer", info.Scorer)
		w.close()
	})
}

func writeQuantities[L ~map[types.ResourceName]N, N int32 | int64](w *podWriter, key string, list L) {
	writeMap(w, key, list, func(quantity N) { *w = strconv.AppendInt(*w, int64(quantity), 10) })
}

// writeMap writes a field that is an object, by its names in order, or nothing when it is empty.
func writeMap[M ~map[K]V, K ~string, V any](w *podWriter, key string, values M, write func(V)) {
	if len(values) == 0 {
		return
	}
	w.key(key)
	w.open()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		w.key(string(name))
		write(values[name])
	}
	w.close()
}

// field writes a field that is a string, or nothing when it is empty.
func (w *podWriter) field(key, value string) {
	if value != "" {
		w.key(key)
		w.quote(value)
	}
}

// key begins a field of the current object.
func (w *podWriter) key(name string) {
	if (*w)[len(*w)-1] != '{' {
		*w = append(*w, ',')
	}
	w.quote(name)
	*w = append(*w, ':')
}

func (w *podWriter) quote(plain string) {
	*w = append(*w, '"')
	*w = append(*w, plain...)
	*w = append(*w, '"')
}

func (w *podWriter) open()  { *w = append(*w, '{') }
func (w *podWriter) close() { *w = append(*w, '}') }

// valid reports whether DecodePod accepts the text that encode writes for the pod, except for its
// length. It is fast; DecodePod reports the error of an invalid pod.
func valid(pod *types.PodInfo) bool {
	return validName(pod.Name) && validName(pod.NodeName) && validQuantities(pod.Requests) &&
		validContainers(pod.InitContainers) && validContainers(pod.RunningContainers)
}

// validName checks the name of a pod or a node, which may be absent.
func validName(name string) bool { return name == "" || checkName("", name) == nil }

func validContainers(containers map[string]types.ContainerInfo) bool {
	for name, info := range containers {
		if checkName("", name) != nil || !validQuantities(info.Requests) || !validQuantities(info.DevRequests) ||
			!validQuantities(info.Scorer) {
			return false
		}
		for request, from := range info.AllocateFrom {
			if checkResource("", string(request)) != nil || checkResource("", string(from)) != nil {
				return false
			}
		}
	}
	return true
}

func validQuantities[L ~map[types.ResourceName]N, N int32 | int64](list L) bool {
	for name, quantity := range list {
		if quantity < 0 || checkResource("", string(name)) != nil {
			return false
		}
	}
	return true
}
