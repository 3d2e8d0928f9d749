// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"path/filepath"

	"github.com/kubedevice/kubedevice/test/binaries"
)

// Kubernetes is a version of Kubernetes that a cluster's API server, controller manager and
// kubelets can have.
type Kubernetes string

// The versions. KubeDevice is built with the last of them, and so are kubectl and Kubernetes' own
// scheduler in every cluster; that emulates the cluster's version.
const (
	Kubernetes134 Kubernetes = "1.34"
	Kubernetes135 Kubernetes = "1.35"
	Kubernetes136 Kubernetes = "1.36"
	Kubernetes137 Kubernetes = "1.37"
)

// versions say which part of the build makes a version. Empty is that which every cluster needs.
var versions = map[Kubernetes]binaries.Extra{
	Kubernetes134: binaries.Kubernetes134,
	Kubernetes135: binaries.Kubernetes135,
	Kubernetes136: binaries.Kubernetes136,
	Kubernetes137: "",
}

func (o Options) kubernetes() Kubernetes { return cmp.Or(o.Kubernetes, Kubernetes137) }

// emulation is the argument with which Kubernetes' own scheduler works in a cluster that is older.
func (o Options) emulation() []string {
	if o.kubernetes() == Kubernetes137 {
		return nil
	}
	return []string{"--emulated-version=kube=" + string(o.kubernetes())}
}

// KubernetesProgram is the path of kube-apiserver, kube-controller-manager or kubelet.
func (o Options) KubernetesProgram(name string) string {
	return filepath.Join(o.Programs, string(versions[o.kubernetes()]), name)
}
