// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Each scheduler that serves the API has a Lease of its own in Namespace, as an API server has one
// for its identity. It renews it, and the annotation AddressAnnotation says where and by whom the
// API is served. Only the scheduler may write in that namespace: see deploy/rbac.
const (
	Namespace         = "kubedevice-schedulers"
	AddressAnnotation = "kubedevice.io/scheduler-api"
)

const (
	// RenewPeriod is how often a scheduler renews its Lease.
	RenewPeriod = 10 * time.Second
	// LeaseDuration is for how long it counts.
	LeaseDuration = 40 * time.Second
)

// Address says where a scheduler serves the API, and how to know it. It is the value of
// AddressAnnotation, in JSON.
type Address struct {
	// Host is the name of the machine, or of the pod.
	Host string `json:"host"`
	// BindAddress and Port are what it listens on. An unspecified address stands for all.
	BindAddress string `json:"bindAddress"`
	Port        int    `json:"port"`
	// PodNamespace and Pod name the pod that it runs in, if it does.
	PodNamespace string `json:"podNamespace,omitempty"`
	Pod          string `json:"pod,omitempty"`
	// Leads says that it is the one that schedules.
	Leads bool `json:"leads"`
	// Version is that of the program.
	Version string `json:"version"`
	// PublicKey is the fingerprint of its serving certificate's public key: see Fingerprint. A
	// certificate that is renewed with the same key has the same.
	PublicKey string `json:"publicKey"`
}

// Fingerprint returns what identifies the public key of a certificate: "sha256:" and the SHA-256 of
// its SubjectPublicKeyInfo in DER, in hexadecimal.
func Fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ReadAddress returns what a Lease publishes. Of a Lease of another user, without the annotation,
// published is false.
func ReadAddress(lease *coordinationv1.Lease) (address Address, published bool, err error) {
	value, published := lease.Annotations[AddressAnnotation]
	if !published {
		return Address{}, false, nil
	}
	if err := json.Unmarshal([]byte(value), &address); err != nil {
		return Address{}, true, fmt.Errorf("annotation %s of lease %s/%s: %w", AddressAnnotation, lease.Namespace,
			lease.Name, err)
	}
	return address, true, nil
}

// Expired reports whether the scheduler has not renewed its Lease for longer than it counts.
func Expired(lease *coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	return spec.RenewTime == nil || spec.LeaseDurationSeconds == nil ||
		now.After(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second))
}
