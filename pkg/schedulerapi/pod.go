// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import (
	"cmp"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodNameVariable names the pod of this scheduler, if a manifest sets it.
const PodNameVariable = "POD_NAME"

// OwnPod returns the namespace and name that the pod of this scheduler has, if it runs in one: from
// POD_NAMESPACE and POD_NAME, which a manifest may set, or as kubeadm's static pod of the host.
func OwnPod(host string) (namespace, name string) {
	return cmp.Or(os.Getenv("POD_NAMESPACE"), metav1.NamespaceSystem),
		cmp.Or(os.Getenv(PodNameVariable), "kube-scheduler-"+host)
}
