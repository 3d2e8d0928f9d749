// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"maps"
	"slices"
	"strconv"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// text writes a sound pod as encode does. Nothing has to be escaped: names are their own JSON. It
// is done for each pod while the next one waits.
type text []byte

func (t *text) pod(pod *types.PodInfo) {
	t.open()
	t.field("podname", pod.Name)
	t.field("nodename", pod.NodeName)
	writeQuantities(t, "requests", pod.Requests)
	t.containers("initcontainer", pod.InitContainers)
	t.containers("runningcontainer", pod.RunningContainers)
	t.close()
}

func (t *text) containers(key string, containers map[string]types.ContainerInfo) {
	writeMap(t, key, containers, func(info types.ContainerInfo) {
		t.open()
		writeQuantities(t, "requests", info.Requests)
		writeQuantities(t, "devrequests", info.DevRequests)
		writeMap(t, "allocatefrom", info.AllocateFrom, func(from types.ResourceName) { t.quote(string(from)) })
		writeQuantities(t, "scorer", info.Scorer)
		t.close()
	})
}

func writeQuantities[L ~map[types.ResourceName]N, N int32 | int64](t *text, key string, list L) {
	writeMap(t, key, list, func(quantity N) { *t = strconv.AppendInt(*t, int64(quantity), 10) })
}

// writeMap writes a field that is an object, by its names in order, or nothing when it is empty.
func writeMap[M ~map[K]V, K ~string, V any](t *text, key string, values M, write func(V)) {
	if len(values) == 0 {
		return
	}
	t.key(key)
	t.open()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t.key(string(name))
		write(values[name])
	}
	t.close()
}

// field writes a field that is a string, or nothing when it is empty.
func (t *text) field(key, value string) {
	if value != "" {
		t.key(key)
		t.quote(value)
	}
}

// key begins a field of the object that is open.
func (t *text) key(name string) {
	if (*t)[len(*t)-1] != '{' {
		*t = append(*t, ',')
	}
	t.quote(name)
	*t = append(*t, ':')
}

func (t *text) quote(plain string) {
	*t = append(*t, '"')
	*t = append(*t, plain...)
	*t = append(*t, '"')
}

func (t *text) open()  { *t = append(*t, '{') }
func (t *text) close() { *t = append(*t, '}') }
