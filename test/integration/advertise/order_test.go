// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

func TestNoWriteAnnouncesMoreGPUsThanWereCountedBeforeIt(t *testing.T) {
	kubelet := register(t, "node-1")
	writes, err := server.Admin.CoreV1().Nodes().Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=node-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer writes.Stop()
	n, stop := publish(t, "node-1", kubelet, newGPUs(2))
	n.await("the first inventory")
	unhealthy := newGPUs(4)
	unhealthy[0].Unhealthy, unhealthy[3].Unhealthy = true, true
	for what, gpus := range map[string][]gpu.GPU{"more": newGPUs(4), "unhealthy": unhealthy, "fewer": newGPUs(1),
		"none": nil} {
		n.set(gpus)
		n.await(what)
	}
	// kubecri is killed between the two writes of a change.
	n.set(newGPUs(8))
	n.until("the counts", func() error {
		if count := counted(n.now()); count != 8 {
			return fmt.Errorf("%d GPUs are counted", count)
		}
		return nil
	})
	stop()
	n, _ = publish(t, "node-1", kubelet, newGPUs(8))
	n.await("what was counted and not announced")

	var before *corev1.Node
	for before == nil || announced(t, before) < 8 {
		event := <-writes.ResultChan()
		if event.Type == watch.Deleted || event.Type == watch.Error {
			t.Fatalf("the watch has ended: %v", event)
		}
		after := event.Object.(*corev1.Node)
		if before == nil {
			before = after
		}
		// The scheduler may have seen either, and the kubelet the other.
		for _, pair := range [][2]*corev1.Node{{before, after}, {after, before}} {
			if more, less := announced(t, pair[0]), counted(pair[1]); more > less {
				t.Errorf("version %s announces %d GPUs and version %s counts %d", pair[0].ResourceVersion, more,
					pair[1].ResourceVersion, less)
			}
		}
		before = after
	}
}

func counted(node *corev1.Node) int64 {
	count := node.Status.Allocatable[corev1.ResourceName(gpu.Resource)]
	return count.Value()
}

// announced returns how many GPUs pods may get.
func announced(t *testing.T, node *corev1.Node) int64 {
	t.Helper()
	value, annotated := node.Annotations[deviceinfo.Annotation]
	if !annotated {
		return 0
	}
	info, err := deviceinfo.DecodeNode(value)
	if err != nil {
		t.Fatal(err)
	}
	var count int64
	for name, quantity := range info.Allocatable {
		if strings.HasSuffix(string(name), "/"+gpu.Cards) {
			count += quantity
		}
	}
	return count
}
