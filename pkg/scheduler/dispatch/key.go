// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// RequestKey identifies what a pod requests: the answers for two pods of equal key are the same on
// any node, except from plugins that are neither Pure nor Translators. It covers
//
//   - the containers in the order of the spec, with the kind that says when each of them runs,
//   - what each of them requests in its spec and in the annotation, and its scorers,
//   - what the annotation requests for the pod as a whole,
//   - which counts are those of devices,
//   - whether the pod has waited for the best devices for long enough.
//
// It does not cover names and UIDs of pods. It is comparable, and depends on nothing that differs
// between processes.
type RequestKey [sha256.Size]byte

// String returns the key in hexadecimal digits.
func (k RequestKey) String() string { return hex.EncodeToString(k[:]) }

// requestKey returns the key of a request, or of what plugins made of one.
func requestKey(
	pod *types.PodInfo, containers []grouptree.Container, counted map[string][]types.ResourceName, waited bool,
) RequestKey {
	c := make(content, 0, 512)
	for _, at := range containers {
		c.str(at.Name)
		c.num(int64(at.Kind))
	}
	c.num(-1)
	addQuantities(&c, pod.Requests)
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		c.num(int64(len(containers)))
		for _, name := range sortedNames(containers) {
			info := containers[name]
			c.str(name)
			addQuantities(&c, info.KubeRequests)
			addQuantities(&c, info.Requests)
			addQuantities(&c, info.DevRequests)
			addQuantities(&c, info.Scorer)
			c.num(int64(len(info.AllocateFrom)))
			for _, request := range sortedNames(info.AllocateFrom) {
				c.str(string(request))
				c.str(string(info.AllocateFrom[request]))
			}
		}
	}
	for _, name := range sortedNames(counted) {
		c.str(name)
		c.num(int64(len(counted[name])))
		for _, resource := range counted[name] {
			c.str(string(resource))
		}
	}
	if waited {
		c.num(-2)
	}
	return sha256.Sum256(c)
}

// nodeKey identifies the state of a node.
type nodeKey [sha256.Size]byte

// contentOf returns the key of all that a plugin sees of a node but its name.
func contentOf(node *types.NodeInfo) nodeKey {
	var c content
	for _, list := range []types.ResourceList{node.Capacity, node.Allocatable, node.Used, node.KubeCap,
		node.KubeAlloc} {
		addQuantities(&c, list)
	}
	addQuantities(&c, node.Scorer)
	return sha256.Sum256(c)
}

// stateOf returns the key of all that the group scheduler sees of a node but the devices' names.
func stateOf(tree *grouptree.DeviceTree, used []int64) nodeKey {
	shape := tree.Shape()
	c := append(make(content, 0, len(shape)+8*len(used)), shape[:]...)
	for _, quantity := range used {
		c = binary.LittleEndian.AppendUint64(c, uint64(quantity))
	}
	return sha256.Sum256(c)
}

// content is arguments in writing. Different ones give different bytes.
type content []byte

func (c *content) num(n int64) { *c = binary.AppendVarint(*c, n) }

func (c *content) str(s string) {
	c.num(int64(len(s)))
	*c = append(*c, s...)
}

func addQuantities[L ~map[types.ResourceName]N, N int32 | int64](c *content, list L) {
	c.num(int64(len(list)))
	for _, name := range sortedNames(list) {
		c.str(string(name))
		c.num(int64(list[name]))
	}
}

// sortedNames is slices.Sorted of the keys, with one allocation of the size that they need. That
// saves a tenth of what a pod costs in the plugin: each pod's request is written like this.
func sortedNames[M ~map[K]V, K ~string, V any](list M) []K {
	if len(list) == 0 {
		return nil
	}
	names := slices.AppendSeq(make([]K, 0, len(list)), maps.Keys(list))
	slices.Sort(names)
	return names
}
