// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seal signs and verifies what the scheduler decides for a pod, so that nobody else can
// give a pod devices. A seal is the value of the annotation KubeDevice/Seal, which the scheduler
// writes with the Binding, beside the allocation.
//
// A seal is a JWS (RFC 7515) in compact form, signed with Ed25519. Its protected header has alg,
// kid and typ; its payload is a [Decision] as JSON:
//
//	{"uid":"…","namespace":"default","name":"train","node":"n1",
//	 "allocation":"<base64url of the SHA-256>","iat":1767225600,"generation":1}
//
// Fields of the payload that are unknown are ignored, so that releases can add some. Everything
// else is strict: one text for one seal, one algorithm, no header that claims to be critical.
//
// # Keys
//
// The scheduler has the private keys in a PEM file: the first one signs. Nodes have self-signed
// certificates, which hold the public keys, in a PEM file or a ClusterTrustBundle. All keys that a
// file lists are valid at the same time, for as long as it lists them; the dates of certificates
// mean nothing. The ID of a key is made from the key itself, so that no file needs to name it.
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

// Annotation is the key of a pod's annotation that has the seal of its allocation.
const Annotation = "KubeDevice/Seal"

// MaxBytes is the size of the largest seal that is made or read. With the longest names that
// Kubernetes accepts a seal has fewer than 1,300 bytes.
const MaxBytes = 4 << 10

// Decision is what the scheduler has decided for one pod, and what a seal says.
type Decision struct {
	// UID, Namespace and Name identify the pod.
	UID       types.UID
	Namespace string
	Name      string
	// Node is the name of the node that the pod is bound to.
	Node string
	// Allocation identifies the devices of each container: see DigestOf.
	Allocation Digest
	// Time is when the seal was made, in whole seconds. A seal does not expire.
	Time time.Time
	// Generation is 0 for the allocation with which the pod was bound, and so in each seal of a
	// release that knew no other. It grows when containers of the pod are given other devices.
	Generation int64
}

// Digest identifies an allocation.
type Digest [sha256.Size]byte

// String returns the digest as a seal has it: base64url without padding.
func (d Digest) String() string { return base64.RawURLEncoding.EncodeToString(d[:]) }

// DigestOf returns the digest of what the scheduler decided in a pod's annotation
// KubeDevice/DeviceInfo: allocatefrom and devrequests of each container, init and running
// containers apart. What users write there does not count, nor does a container without devices, so
// it makes no difference whether pod is the decoded annotation or has the containers of the spec
// added.
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
