// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// grantAnnotation is an annotation of containers with devices in the runtime.
const grantAnnotation = "KubeDevice/Grant"

// A runtime that restores a checkpoint image makes a container with the annotations of the image.
// Here the runtime is made to create such containers, in the sandbox of a pod without devices, with
// the annotation of a holder's container; then kubecri loses its checkpoint.
func TestARestoredImageGetsNoDeviceWhenTheCheckpointIsLost(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "holder", 1)))
	card := inspect(ctx, t, holder, "main").Paths[0]
	forger := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(node.Name, clustertest.IdlePod(namespace, "forger", nil)))
	// What an NRI plugin has added is not in the runtime's status.
	encoded, err := node.Run(ctx, "crictl", "inspect", "--output=go-template",
		`--template={{or (index .status.annotations "`+grantAnnotation+`") (index .info.runtimeSpec.annotations "`+
			grantAnnotation+`")}}`, containerID(holder, "main"))
	if err != nil {
		t.Fatal(err)
	}
	encoded = strings.TrimSpace(encoded)
	if !strings.HasPrefix(encoded, "v1.") || strings.Contains(encoded, "requests") {
		t.Fatalf("the holder's container has %q", encoded)
	}

	if err := node.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	for name, annotation := range map[string]string{
		"copied": encoded, "changed": strings.Replace(encoded, `"cards":1`, `"cards":2`, 1), "unsigned": "{}",
	} {
		if err := node.CreateInSandbox(ctx, forger, name, map[string]string{grantAnnotation: annotation}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(node.Var(), "lib", "kubedevice", "grants")); err != nil {
		t.Fatal(err)
	}
	if err := node.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}

	awaitHolder(ctx, t, node, holder)
	clustertest.AwaitMetric(ctx, t, node, `kubecri_grant_annotations_ignored_total{reason="forged"} 2`)
	clustertest.AwaitMetric(ctx, t, node, `kubecri_grant_annotations_ignored_total{reason="unsigned"} 1`)
	awaitIgnored(ctx, t, forger, "is not this node's for this pod and container")
	clustertest.AwaitSuccess(ctx, t, "the holder alone to have "+card, func() error {
		printed, err := node.RunKubecri(ctx, "grants") // of the record, which is written after the metrics
		if err == nil && (strings.Contains(printed, forger.Name) || !strings.Contains(printed, card)) {
			err = errors.New("the record says:\n" + printed)
		}
		return err
	})
	if again := inspect(ctx, t, clustertest.RestartContainer(ctx, t, shared.Client, holder), "main").Paths; len(
		again) != 1 || again[0] != card {
		t.Errorf("the holder's next container has %q, want %s", again, card)
	}
}

// awaitIgnored waits for an event on the pod that the annotation of one of its containers does not
// count.
func awaitIgnored(ctx context.Context, t *testing.T, pod *corev1.Pod, text string) {
	t.Helper()
	clustertest.Await(ctx, t, "an event GrantIgnored on pod "+pod.Name, func() bool {
		events, err := shared.Client.CoreV1().Events(pod.Namespace).List(ctx,
			metav1.ListOptions{FieldSelector: "reason=GrantIgnored,involvedObject.name=" + pod.Name})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	})
}
