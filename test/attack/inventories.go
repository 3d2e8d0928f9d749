// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
)

// undone is what comes of a change of a node's annotation that its kubecri takes back.
var undone = Want{NoEffect, "as it was"}

// inventories are attempts to change what the scheduler believes of a node.
func inventories() []*Attempt {
	labelled := func(id, what string, patch []byte, subresources ...string) *Attempt {
		return &Attempt{
			ID: id, Who: Labeller, What: what, Defence: Inventory, Alone: true,
			Want: policyElse(isNode, undone),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				labeller, err := s.labeller(ctx)
				if err != nil {
					return Got{}, err
				}
				return s.changeNode(ctx, labeller, s.node(forged).Name, patch, subresources...)
			},
			Off: Off{How: "no policies, and no kubecri on the node", Try: func(ctx context.Context, s *Stage) (Got,
				error) {
				labeller, err := s.labeller(ctx)
				if err != nil {
					return Got{}, err
				}
				if err := s.annotateNode(ctx, s.admin, s.node(withoutKubecri).Name, `{"name":"x"}`); err != nil {
					return Got{}, err
				}
				return s.changeNode(ctx, labeller, s.node(withoutKubecri).Name, patch, subresources...)
			}},
		}
	}
	ownNode := Off{How: "it is the node's own kubelet", Try: func(ctx context.Context, s *Stage) (Got, error) {
		if err := s.makeGhost(ctx); err != nil {
			return Got{}, err
		}
		kubelet, err := s.cluster.KubeletClient(ghost)
		if err != nil {
			return Got{}, err
		}
		return s.changeNode(ctx, kubelet, ghost, annotate(`{"name":"`+s.attempt.ID+`"}`), "status")
	}}
	first := labelled("inventory-patch", "empties a node's inventory by a patch", annotate(`{}`))
	first.Sample = true
	return []*Attempt{
		first,
		labelled("inventory-status", "does so by a patch of the node's status", annotate(`{}`), "status"),
		labelled("inventory-removed", "removes it", annotate(nil)),
		labelled("inventory-garbage", "writes in its place what is not JSON", annotate(`{{`)),
		labelled("holders-forged", "writes that a pod holds devices of a node without a seal",
			annotateHolders(`[{"uid":"u",`+
				`"namespace":"n","name":"p","containers":{"main":["`+string(cardOf(reservedCard))+`"]}}]`)),
		labelled("holders-garbage", "writes in that annotation what is not JSON", annotateHolders(`{{`), "status"),
		labelled("replacements-forged", "requests other devices for a pod in a node's name",
			annotateWith(deviceinfo.ReplacementsAnnotation,
				`{"version":1,"pods":[{"uid":"u","containers":["main"]}]}`)),
		labelled("required-plugin-forged", "says in a node's name that its runtime requires kubecri of device pods",
			annotateWith(deviceinfo.RequiredPluginAnnotation, "other")),
		labelled("health-forged", "says in a node's name that a device of it has failed",
			annotateWith(deviceinfo.UnhealthyAnnotation,
				`[{"device":"gpu/gpu-199","reason":"Xid79","since":"2020-01-01T00:00:00Z"}]`)),
		labelled("attributes-forged", "says in a node's name that a device of it is of another model",
			annotateWith(deviceinfo.AttributesAnnotation, `{"gpu/gpu-199":{"productName":"other"}}`)),
		labelled("usage-forged", "says in a node's name that a device of it is not used",
			annotateWith(deviceinfo.UsageAnnotation, `{"time":"2020-01-01T00:00:00Z","devices":{"gpu/gpu-199":{}}}`)),
		{
			ID: "inventory-other-kubelet", Who: Kubelet, What: "writes another node's inventory", Defence: Rights,
			Want: everywhere(RefusedByAPIServer, "not allowed to modify node"), Off: ownNode,
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				kubelet, err := s.cluster.KubeletClient(s.node(scheduled).Name)
				if err != nil {
					return Got{}, err
				}
				return s.changeNode(ctx, kubelet, s.node(forged).Name, annotate(`{}`), "status")
			},
		},
		{
			ID: "taints-other-kubelet", Who: Kubelet, What: "cordons another node's device", Defence: Rights,
			Want: everywhere(RefusedByAPIServer, "not allowed to modify node"), Off: ownNode,
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				kubelet, err := s.cluster.KubeletClient(s.node(scheduled).Name)
				if err != nil {
					return Got{}, err
				}
				return s.changeNode(ctx, kubelet, s.node(forged).Name, annotateTaints(cordonedGPU))
			},
		},
		{
			ID: "inventory-node-name", Who: Labeller,
			What: "has a node's name and not the group of nodes, and writes its " +
				"inventory", Defence: Inventory, Alone: true, Want: policyElse(isNode, undone), Off: ownNode,
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				if err := s.makeNamespace(ctx); err != nil {
					return Got{}, err
				}
				if _, err := s.labeller(ctx); err != nil {
					return Got{}, err
				}
				const group = "attackers"
				if err := s.bindEverywhere(ctx, s.namespace+"-labeller",
					[]rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}}); err != nil {
					return Got{}, err
				}
				named, err := s.admin.As("system:node:"+s.node(forged).Name, group)
				if err != nil {
					return Got{}, err
				}
				if err := named.AwaitRights(ctx, patchNodes); err != nil {
					return Got{}, err
				}
				return s.changeNode(ctx, named, s.node(forged).Name, annotate(`{}`))
			},
		},
	}
}

// changeNode patches a node as client. It succeeds if the inventory stays changed.
func (s *Stage) changeNode(ctx context.Context, client *kube.Client, node string, patch []byte,
	subresources ...string) (Got, error) {
	before, err := s.admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	patched, err := client.CoreV1().Nodes().Patch(ctx, node, apitypes.MergePatchType, patch, metav1.PatchOptions{},
		subresources...)
	if got, refused, err := refusal(err); refused || err != nil {
		return got, err
	}
	// kubecri undoes it at once.
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	_, err = s.admin.AwaitNode(ctx, node, "to have its inventory back", func(now *corev1.Node) bool {
		newer, err := resourceversion.CompareResourceVersion(now.ResourceVersion, patched.ResourceVersion)
		same := func(key string) bool { return now.Annotations[key] == before.Annotations[key] }
		return err == nil && newer > 0 && same(deviceinfo.Annotation) && same(deviceinfo.HoldersAnnotation) &&
			same(deviceinfo.ReplacementsAnnotation) && same(deviceinfo.UnhealthyAnnotation) &&
			same(deviceinfo.AttributesAnnotation) && same(deviceinfo.UsageAnnotation) &&
			same(deviceinfo.RequiredPluginAnnotation)
	})
	if wait.Interrupted(err) || errors.Is(err, context.DeadlineExceeded) {
		return Got{Succeeds, fmt.Sprintf("the inventory of %s stays changed", node)}, nil
	}
	return Got{NoEffect, "the inventory is as it was"}, err
}

// cordonedGPU is the annotation of a node with a cordoned GPU.
const cordonedGPU = `{"version":1,"taints":[{"device":"gpu/gpu-0","key":"kubedevice.io/unschedulable",` +
	`"effect":"NoSchedule"}]}`

// annotateTaints returns a merge patch of a node's annotation of taints of its devices.
func annotateTaints(value string) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{deviceinfo.DeviceTaintsAnnotation: value},
	}})
	if err != nil {
		panic(err) // strings can be encoded
	}
	return patch
}

// annotateHolders returns a merge patch of a node's annotation of holders.
func annotateHolders(value string) []byte { return annotateWith(deviceinfo.HoldersAnnotation, value) }

// annotateWith returns a merge patch of an annotation.
func annotateWith(key, value string) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{key: value},
	}})
	if err != nil {
		panic(err) // strings can be encoded
	}
	return patch
}

// undoLimit is how long a change of a node may stay, or may not have been seen.
const undoLimit = 20 * time.Second

// annotateNode writes a node's annotation.
func (s *Stage) annotateNode(ctx context.Context, client *kube.Client, node, value string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, node, apitypes.MergePatchType, annotate(value), metav1.PatchOptions{})
	return err
}
