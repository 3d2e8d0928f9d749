// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frontends

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/dradriver"
)

// computeDomains is like NVIDIA's driver for ComputeDomains, which gives out IMEX channels: its CDI
// devices are of the vendor whose GPUs are allocated here, and none of them is a GPU.
var computeDomains = dradriver.Driver{
	Name: "compute-domain.nvidia.com", Kind: "k8s.compute-domain.nvidia.com/claim", Device: "channel-0",
}

func TestAClaimOfTheVendorsOtherDriverReachesAllContainersOfADevicePod(t *testing.T) {
	for _, node := range shared.Nodes {
		t.Run(node.Name, func(t *testing.T) {
			ctx := begin(t)
			namespace := clustertest.Namespace(t, shared.Client)
			stop, err := dradriver.Start(ctx, shared.Client, node, computeDomains)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := stop(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			claim := computeDomains.Claim(namespace, "domain")
			if _, err := shared.Client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			claiming := pod(node.Name, namespace, "claiming", 2)
			first := claiming.Spec.Containers[0]
			first.Name, first.Resources = "first", corev1.ResourceRequirements{}
			first.Command, first.Args = []string{"/bin/sh", "-c", "env | grep -x " + dradriver.Variable}, nil
			claiming.Spec.InitContainers = []corev1.Container{first}
			dradriver.Use(claiming, claim.Name)
			claiming = clustertest.RunPod(ctx, t, shared.Client, claiming)
			inspect(ctx, t, claiming, 2)
			if !hasVariable(ctx, t, claiming) {
				t.Errorf("the container has not the claim's device %s", computeDomains.CDI())
			}

			forging := pod(node.Name, namespace, "forging", 0)
			forging.Annotations = map[string]string{"cdi.k8s.io/mine": computeDomains.CDI()}
			forging = clustertest.CreatePod(ctx, t, shared.Client, forging)
			isRefused := func(status corev1.ContainerStatus) bool {
				waiting := status.State.Waiting
				return waiting != nil && strings.Contains(waiting.Message, "requests devices")
			}
			clustertest.AwaitPod(ctx, t, shared.Client, forging, "to be refused without a claim",
				func(p *corev1.Pod) bool { return slices.ContainsFunc(p.Status.ContainerStatuses, isRefused) })
			for _, p := range []*corev1.Pod{claiming, forging} {
				if err := shared.Client.DeletePod(ctx, p); err != nil {
					t.Fatal(err) // the driver has to unprepare the claim
				}
			}
		})
	}
}

// hasVariable reports whether the pod's container main has the variable of the claimed device.
func hasVariable(ctx context.Context, t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	said, err := shared.Client.Exec(ctx, pod, "main", "/bin/sh", "-c", "env | grep -cx "+dradriver.Variable+" || true")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(said) == "1"
}
