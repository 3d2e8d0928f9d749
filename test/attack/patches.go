// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
)

// Words of the policies.
const (
	mayWrite  = "which only the device scheduler may write"
	mayChange = "only the device scheduler may change it"
	maySend   = "only the device scheduler may send the annotation"
	isNode    = "only the node itself may change its annotation"
)

// reservedCard is a card that no attempt has as its own.
const reservedCard = 399

// annotate returns a merge patch that sets the annotation, or removes it if value is nil.
func annotate(value any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{deviceinfo.Annotation: value},
	}})
	if err != nil {
		panic(err) // strings and nil can be encoded
	}
	return patch
}

// mergePatch patches a pod.
func mergePatch(ctx context.Context, client *kube.Client, pod *corev1.Pod, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, apitypes.MergePatchType, patch,
		metav1.PatchOptions{}, subresources...)
	return err
}
