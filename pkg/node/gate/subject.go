// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The annotation in which the kubelet tells the runtime where it has a pod from. A user cannot set it: the kubelet
// overwrites it.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

// subject is the pod that a call is about, as the kubelet describes it.
type subject struct {
	uid, namespace, name string
	annotations          map[string]string
}

func subjectOf(sandbox *runtimeapi.PodSandboxConfig) subject {
	return subject{
		uid:         sandbox.GetMetadata().GetUid(),
		namespace:   sandbox.GetMetadata().GetNamespace(),
		name:        sandbox.GetMetadata().GetName(),
		annotations: sandbox.GetAnnotations(),
	}
}

// fromAPI reports whether the API server knows the pod, so that it may have been scheduled.
func (s subject) fromAPI() bool { return s.annotations[sourceAnnotation] == sourceAPI }

func (s subject) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.namespace, Name: s.name, UID: types.UID(s.uid)}
}
