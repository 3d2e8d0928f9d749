// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// Withdraw removes what an Advertiser published on the node of that name, in one patch: the
// annotations, and the extended resources that count devices of the inventory, or parts of them. It
// returns their names, sorted, and whether there was an inventory. Without one it changes nothing,
// since only the annotation shows which extended resources are devices. It needs no rights beyond
// the kubelet's.
//
// No Advertiser may run for that node: it would publish again.
func Withdraw(ctx context.Context, client kubernetes.Interface,
	nodeName string) (resources []string, found bool, err error) {
	node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, fmt.Errorf(
			"node %q is not in the API server: nothing is published if it was deleted; otherwise give the node's "+
				"right name", nodeName)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read node %q: %w", nodeName, err)
	}
	annotation, found := node.Annotations[deviceinfo.Annotation]
	if !found {
		return nil, false, nil
	}
	if _, err := deviceinfo.DecodeNode(annotation); err != nil {
		return nil, true, fmt.Errorf(
			"node %q: the annotation %s cannot be read, so the extended resources of devices are not known: %w; "+
				"let kubecri run until it has replaced the annotation, or remove both by hand", nodeName,
			deviceinfo.Annotation, err)
	}
	body, err := patch(node, map[string]string{
		deviceinfo.Annotation: "", deviceinfo.HoldersAnnotation: "", deviceinfo.RequiredPluginAnnotation: "",
		deviceinfo.UnhealthyAnnotation: "", deviceinfo.ReplacementsAnnotation: "",
		deviceinfo.AttributesAnnotation: "", deviceinfo.UsageAnnotation: "",
		deviceinfo.ShareEnforcementAnnotation: "",
	}, nil, nil)
	if err != nil {
		return nil, true, err
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, nodeName, apitypes.MergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager}, "status"); err != nil {
		return nil, true, fmt.Errorf("remove the devices of node %q: %w", nodeName, err)
	}
	resources = publishedNames(node)
	for _, part := range partNames(resources) {
		if _, there := node.Status.Capacity[corev1.ResourceName(part)]; there {
			resources = append(resources, part)
		}
	}
	slices.Sort(resources)
	return resources, true, nil
}
