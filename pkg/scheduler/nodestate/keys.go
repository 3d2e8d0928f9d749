// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"hash/maphash"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// allocationEntries is for how many bound pods it is known what they hold.
const allocationEntries = 1 << 11

// allocationKey is all that the allocation of a bound pod depends on.
type allocationKey struct {
	uid      types.UID
	version  string
	revision uint64 // of the node's inventory, which says whose seals count
}

// sealEntries is how many answers about seals are cached. A bound pod with devices needs one.
const sealEntries = 1 << 15

// sealed is all that the answer about a bound pod's seal depends on: its namespace, name and node
// do not change while it has its UID.
type sealed struct {
	verifier   *seal.Verifier
	uid        types.UID
	allocation string // the annotation
	seal       string
}

func sealedOf(verifier *seal.Verifier, pod *v1.Pod) sealed {
	return sealed{verifier, pod.UID, pod.Annotations[deviceinfo.Annotation], pod.Annotations[seal.Annotation]}
}

// requestingEntries is of how many pods it is remembered whether their annotations request devices.
const requestingEntries = 1 << 14

// annotationOf identifies what a pod's annotation says.
type annotationOf struct {
	uid types.UID
	sum uint64 // of the annotation, by maphash
}

// estimateEntries are some for each of the nodes that changed last: one for all its pods, and
// others for those that pods of different priorities leave there.
const estimateEntries = 1 << 11

// estimateKey identifies a state of a node in the informers.
type estimateKey struct {
	node     types.UID
	revision uint64
	pods     uint64
}

// seed is that of fingerprints.
var seed = maphash.MakeSeed()

// fingerprint identifies versions of pods, in any order.
func fingerprint(pods []*v1.Pod) uint64 {
	type version struct {
		uid     types.UID
		version string
	}
	sum := uint64(len(pods))
	for _, pod := range pods {
		sum += maphash.Comparable(seed, version{pod.UID, pod.ResourceVersion})
	}
	return sum
}
