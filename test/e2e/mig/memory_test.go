// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// The memory of a GPU is what its programs can use: the driver reserves some in addition, which no
// pod gets.
func TestAPodGetsAllMemoryThatProgramsCanUseAndNoMore(t *testing.T) {
	ctx := begin(t)
	awaitOffer(ctx, t, map[corev1.ResourceName]int64{whole: 1})
	namespace := clustertest.Namespace(t, shared.Client)
	sharing := func(name string, mebibytes int) *corev1.Pod {
		pod := clustertest.IdlePod(namespace, name, nil)
		kube.SetRequests(pod, fmt.Sprintf(`"gpu/a/memory":"%dMi"`, mebibytes))
		return pod
	}
	usable := mig.H100With80GB().MemoryMiB
	more := clustertest.CreatePod(ctx, t, shared.Client, sharing("more", usable+1))
	clustertest.AwaitPod(ctx, t, shared.Client, more, "to wait", kube.Unschedulable)
	clustertest.RunPod(ctx, t, shared.Client, sharing("all", usable))
}
