// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/integration/controlplane"
	"github.com/kubedevice/kubedevice/test/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startTimeout allows for a busy machine: a quiet one needs five seconds.
const startTimeout = 2 * time.Minute

var server *controlplane.ControlPlane

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	if server, err = controlplane.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const annotation = "KubeDevice/DeviceInfo"

func TestABindingSetsNodeAndAnnotationInOneWriteAndOverwritesWhatTheUserWrote(t *testing.T) {
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := server.Admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := kube.NewPod("bound", "busybox")
	pod.Annotations = map[string]string{annotation: "forged", "other": "kept"}
	pod, err := server.Admin.CreatePod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := server.Client("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	watch, err := server.Admin.CoreV1().Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	err = scheduler.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, UID: pod.UID, Annotations: map[string]string{annotation: "allocated"},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	first := (<-watch.ResultChan()).Object.(*corev1.Pod) // the very first change shows both
	if first.Spec.NodeName != node.Name || first.Annotations[annotation] != "allocated" ||
		first.Annotations["other"] != "kept" {
		t.Errorf("first state after the binding: node %q, annotations %q", first.Spec.NodeName, first.Annotations)
	}
}

func TestUsersHaveOnlyTheRightsThatRBACGivesThem(t *testing.T) {
	ctx := t.Context()
	stranger, err := server.Client("stranger")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.CreatePod(ctx, kube.NewPod("strange", "busybox")); !apierrors.IsForbidden(err) {
		t.Errorf("a user without roles creates a pod: %v, want it forbidden", err)
	}
	impersonated, err := server.Admin.As("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := impersonated.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("an administrator acts as the scheduler and lists nodes: %v", err)
	}
	node, err := server.Client("system:node:n2", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}
	if _, err := node.CoreV1().Nodes().Create(ctx, other, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node creates another node: %v, want it forbidden by NodeRestriction", err)
	}
}
