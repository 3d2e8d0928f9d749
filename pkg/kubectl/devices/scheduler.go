// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scheduler is a scheduler that publishes where it answers.
type Scheduler struct {
	metav1.TypeMeta `json:",inline"`
	// Name is that of its Lease in the namespace kubedevice-schedulers.
	Name string `json:"name"`
	// Leads says that it schedules. The others stand by.
	Leads bool `json:"leads"`
	// Version is that of the program.
	Version string `json:"version"`
	// Host, BindAddress and Port are where it listens.
	Host        string `json:"host"`
	BindAddress string `json:"bindAddress"`
	Port        int    `json:"port"`
	// Pod is the namespace and name of the pod that it runs in, if it is known.
	Pod string `json:"pod,omitempty"`
	// PublicKey is the fingerprint of the public key of its certificate.
	PublicKey string `json:"publicKey"`
	// Renewed is when it last said that it is there.
	Renewed time.Time `json:"renewed,omitzero"`
	// CompleteSince is since when it knows all nodes and pods, if it was reached.
	CompleteSince time.Time `json:"completeSince,omitzero"`
	// Problem is why it was not reached. It is empty if it was.
	Problem string `json:"problem,omitempty"`
}

// SchedulerList is several schedulers.
type SchedulerList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*Scheduler `json:"items"`
}
