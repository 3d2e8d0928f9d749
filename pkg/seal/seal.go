// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seal signs and verifies the scheduler's decision for a pod, so that no other client can
// allocate devices to a pod. A seal is the value of the annotation KubeDevice/Seal, which the
// scheduler writes with the Binding, next to the allocation.
//
// A seal is a JWS (RFC 7515) in compact form, signed with Ed25519. Its protected header has alg,
// kid and typ; its payload is a [Decision] as JSON:
//
//	{"uid":"…","namespace":"default","name":"train","node":"n1",
//	 "allocation":"<base64url of the SHA-256>","iat":1767225600,"generation":1}
//
// Readers ignore unknown fields of the payload, so that later releases can add fields. Everything
// else is strict: one text for one seal, one algorithm, no critical header.
//
// # Keys
//
// The scheduler has the private keys in a PEM file: the first one signs. Nodes have self-signed
// certificates of the public keys, in a PEM file or a ClusterTrustBundle. All keys in a file are
// valid at the same time, as long as the file lists them; the dates of certificates have no effect.
// The ID of a key derives from the key, so that no file needs to name it.
//
// Signers, verifiers and files are safe for concurrent use.
package seal

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Annotation is the key of the pod annotation with the seal of the allocation.
const Annotation = "KubeDevice/Seal"

// MaxBytes is the maximum size of a seal. With the longest names that Kubernetes accepts a seal has
// fewer than 1,300 bytes.
const MaxBytes = 4 << 10

// Decision is the scheduler's decision for one pod: the content of a seal.
type Decision struct {
	// UID, Namespace and Name identify the pod.
	UID       types.UID
	Namespace string
	Name      string
	// Node is the name of the pod's node.
	Node string
	// Allocation identifies the devices of each container: see DigestOf.
	Allocation Digest
	// Time is the time of sealing, in whole seconds. A seal does not expire.
	Time time.Time
	// Generation is 0 for the allocation of the pod's binding, and in seals of releases without
	// generations. It grows when the scheduler replaces devices of the pod.
	Generation int64
}

// Digest identifies an allocation.
type Digest [sha256.Size]byte

// String returns the digest as a seal has it: base64url without padding.
func (d Digest) String() string { return base64.RawURLEncoding.EncodeToString(d[:]) }

// DigestOf returns the digest of the scheduler's fields in a pod's annotation
// KubeDevice/DeviceInfo: allocatefrom and devrequests of each container, separately for init and
// running containers. It ignores users' fields and containers without devices, so pod may be the
// decoded annotation, with or without the other containers of the spec.
func DigestOf(pod *sdk.PodInfo) Digest {
	// Counts and lengths come first: no two allocations have the same text.
	text := make([]byte, 0, 1024)
	text = append(text, "kubedevice allocation 1\n"...)
	text = appendContainers(text, pod.InitContainers)
	text = appendContainers(text, pod.RunningContainers)
	return sha256.Sum256(text)
}

func appendContainers(text []byte, containers map[string]sdk.ContainerInfo) []byte {
	names := make([]string, 0, len(containers))
	for name, info := range containers {
		if len(info.AllocateFrom)+len(info.DevRequests) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	text = binary.AppendUvarint(text, uint64(len(names)))
	for _, name := range names {
		info := containers[name]
		text = appendString(text, name)
		text = binary.AppendUvarint(text, uint64(len(info.AllocateFrom)))
		for _, request := range slices.Sorted(maps.Keys(info.AllocateFrom)) {
			text = appendString(text, string(request))
			text = appendString(text, string(info.AllocateFrom[request]))
		}
		text = binary.AppendUvarint(text, uint64(len(info.DevRequests)))
		for _, request := range slices.Sorted(maps.Keys(info.DevRequests)) {
			text = appendString(text, string(request))
			text = binary.AppendVarint(text, info.DevRequests[request])
		}
	}
	return text
}

func appendString(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}
