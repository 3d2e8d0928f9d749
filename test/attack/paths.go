// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// outruns are attempts by variables that name paths of the node, and by an annotation that the pod
// no longer has when the container is created.
func outruns() []*Attempt {
	const refused = "decides which devices the container runtime gives it, and cannot be overridden"
	off := Off{How: "the device firewall is off"}
	variable := func(id, what, name, value string) *Attempt {
		return &Attempt{
			ID: id, Who: Tenant, What: what, Defence: Firewall, Want: everywhere(RefusedByNode, refused), Off: off,
			Try: runsWith(func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: name, Value: value}}
			}, nil),
		}
	}
	return []*Attempt{
		variable("firewall-snapshot", "has Ascend's runtime restore a process image from a directory of the node",
			"host_snapshot_path", "/tmp"),
		variable("firewall-lists", "has Ascend's runtime mount what a file lists outside its directory of lists",
			"ASCEND_RUNTIME_MOUNTS", "base,../../tmp/mine"),
		{
			ID: "firewall-bytes", Who: Tenant, Defence: Firewall, Off: off,
			What: "sets such a variable to a value of a Secret that is not UTF-8, as no error over NRI may be",
			Want: everywhere(RefusedByNode, refused), Try: quotesBytes,
		},
		{
			ID: "firewall-cdi-removed", Who: Tenant, Defence: Firewall, Modes: proxyAlone, Off: off,
			What: "names a CDI device in an annotation, and removes it when the sandbox runs",
			Want: everywhere(NoEffect, ""), Try: removesAnnotation,
		},
	}
}

// quotesBytes runs a pod with a variable that the node refuses, whose value is not UTF-8.
func quotesBytes(ctx context.Context, s *Stage) (Got, error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	if _, err := tenant.CoreV1().Secrets(s.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretBytes},
		Data:       map[string][]byte{"host_snapshot_path": []byte("/tmp/\xff")},
	}, metav1.CreateOptions{}); err != nil {
		return Got{}, err
	}
	pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", 0))
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: secretBytes}}}}
	return s.runs(ctx, tenant, pod)
}

// removesAnnotation removes a pod's annotation when its container was refused for it. The sandbox
// has the annotation still, but containerd does not read that.
func removesAnnotation(ctx context.Context, s *Stage) (Got, error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", 0))
	pod.Annotations = map[string]string{"cdi.k8s.io/mine": "nvidia.com/gpu=all"}
	if got, err := s.runs(ctx, tenant, pod); err != nil || got.Outcome != RefusedByNode {
		return got, err
	}
	now, err := tenant.CoreV1().Pods(s.namespace).Patch(ctx, pod.Name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"cdi.k8s.io/mine":null}}}`), metav1.PatchOptions{})
	if err != nil {
		return Got{}, err
	}
	now, err = s.admin.AwaitPod(ctx, now, "to run without the annotation", kube.Ready)
	if err != nil {
		return Got{}, err
	}
	return s.settle(ctx, now)
}
