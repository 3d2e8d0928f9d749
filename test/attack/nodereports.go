// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// nodeReport is what a kubelet says of its own node, which no other component checks: annotations,
// and counts of resources in the node's status.
type nodeReport struct {
	annotations map[string]string
	counts      map[corev1.ResourceName]string
}

// foreign is a resource that no node of ours has.
const foreign = "attack.example/hca"

// reportOthersResources lists as the ghost's devices a resource that another node's kubelet counts,
// and without the defence sends a pod that requests it to the ghost.
func reportOthersResources(ctx context.Context, p *trial, arguments toGhost) (Got, error) {
	if arguments.ToGhost {
		listing := nodeReport{annotations: inventoryOf(foreign)}
		return reporting(listing, func(ctx context.Context, s *Stage) (Got, error) {
			return unserved(s.bound(ctx, onGhost(s.requesting(foreign))))
		})(ctx, p.Stage)
	}
	return reporting(nodeReport{annotations: inventoryOf(foreign, "cpu", "memory", "ephemeral-storage")},
		func(ctx context.Context, s *Stage) (Got, error) {
			restore, err := s.count(ctx, s.node(scheduled).Name, foreign, 2)
			if err != nil {
				return Got{}, err
			}
			got, err := s.boundWithin(ctx, s.requesting(foreign), undoTimeout)
			return got, errors.Join(err, restore(context.WithoutCancel(ctx)))
		})(ctx, p.Stage)
}

// toGhost says that others' pod is sent to the ghost.
type toGhost struct {
	ToGhost bool `json:"to ghost"`
}

// reportOthersDevices lists the devices of the node scheduled as the ghost's, and that a pod there
// holds them.
func reportOthersDevices(ctx context.Context, p *trial, arguments toGhost) (Got, error) {
	return copying(func(ctx context.Context, s *Stage) (Got, error) {
		if !arguments.ToGhost {
			return s.bound(ctx, clustertest.On(s.node(scheduled).Name, s.pod("other", 1)))
		}
		got, err := s.bound(ctx, onGhost(s.pod("other", 1)))
		if got.Outcome == NoEffect {
			got.Outcome = Succeeds
		}
		return got, err
	})(ctx, p.Stage)
}

// reportBestDevices has a scheduler with these arguments place a pod while the ghost lists better
// devices than other nodes have.
func reportBestDevices(ctx context.Context, p *trial, arguments struct {
	Arguments []string `json:"arguments"`
}) (Got, error) {
	return waitingForTheBest(arguments.Arguments...)(ctx, p.Stage)
}

// reportCount counts GPUs that the ghost does not have, for a pod that requests exact ones, or so
// many.
func reportCount(ctx context.Context, p *trial, arguments struct {
	Exact bool `json:"exact"`
}) (Got, error) {
	return counting(arguments.Exact)(ctx, p.Stage)
}

// inventoryOf returns the annotation of a node that lists 16 of each resource.
func inventoryOf(names ...string) map[string]string {
	list := map[string]int{}
	for _, name := range names {
		list[name] = 16
	}
	text, err := json.Marshal(map[string]any{"capacity": list, "allocatable": list})
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return map[string]string{deviceinfo.Annotation: string(text)}
}

// requesting returns a pod that requests one of a resource by its limit.
func (s *Stage) requesting(name corev1.ResourceName) *corev1.Pod {
	return clustertest.IdlePod(s.namespace, "other", map[corev1.ResourceName]int64{name: 1})
}

// onGhost lets a pod go to the ghost alone, with all its taints tolerated.
func onGhost(pod *corev1.Pod) *corev1.Pod {
	return tolerant(clustertest.On(ghost, pod))
}

// waitingForTheBest has a scheduler place a pod of others that counts GPUs, of which the ghost has
// better ones.
func waitingForTheBest(args ...string) Try {
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("resource/group/gpugrp1/0/gpugrp0/0/gpu/g%d/cards", i)
	}
	listing := nodeReport{annotations: inventoryOf(many...)}
	return reporting(listing, func(ctx context.Context, s *Stage) (got Got, err error) {
		scheduler, err := s.startScheduler(ctx, nil, args...)
		if err != nil {
			return Got{}, err
		}
		defer func() { err = errors.Join(err, scheduler.Kill9(context.WithoutCancel(ctx))) }()
		pod, err := s.admin.CreatePod(ctx, s.forOwnScheduler(s.pod("other", 4)))
		if err != nil {
			return Got{}, err
		}
		if _, err := s.admin.AwaitPod(ctx, pod, "to be tried", func(now *corev1.Pod) bool {
			return kube.Scheduled(now) || kube.Unschedulable(now)
		}); err != nil {
			return Got{}, err
		}
		restore, err := s.count(ctx, s.node(scheduled).Name, "attack.example/other", 1) // and tried again
		defer func() { err = errors.Join(err, restore(context.WithoutCancel(ctx))) }()
		if err != nil {
			return Got{}, err
		}
		limited, cancel := context.WithTimeout(ctx, delayTimeout)
		defer cancel()
		now, err := s.admin.AwaitPod(limited, pod, "to be scheduled", kube.Scheduled)
		switch {
		case err == nil:
			return Got{NoEffect, "the pod is bound to " + now.Spec.NodeName}, nil
		case ctx.Err() == nil && limited.Err() != nil:
			return Got{Succeeds, "the pod waits"}, nil
		default:
			return Got{}, err
		}
	})
}

// copying makes the ghost's kubelet list what the node scheduled has, and say that a pod there
// holds all of it.
func copying(then Try) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		node, err := s.admin.CoreV1().Nodes().Get(ctx, s.node(scheduled).Name, metav1.GetOptions{})
		if err != nil {
			return Got{}, err
		}
		own, err := s.victim(ctx)
		if err != nil {
			return Got{}, err
		}
		cards := types.ResourceList{}
		for i := range devices[scheduled] {
			cards[cardOf(i)] = 1
		}
		holders, err := deviceinfo.EncodeHolders([]deviceinfo.Holder{{
			UID: own.pod.UID, Namespace: own.pod.Namespace, Name: own.pod.Name,
			Containers: map[string]types.ResourceList{"main": cards},
		}})
		if err != nil {
			return Got{}, err
		}
		return reporting(nodeReport{
			annotations: map[string]string{
				deviceinfo.Annotation:        node.Annotations[deviceinfo.Annotation],
				deviceinfo.HoldersAnnotation: holders,
			},
			counts: map[corev1.ResourceName]string{observe.Resource: fmt.Sprint(devices[scheduled])},
		}, then)(ctx, s)
	}
}

// counting makes the ghost's kubelet count GPUs, and has a pod scheduled that may go there.
func counting(exact bool) Try {
	return reporting(nodeReport{counts: map[corev1.ResourceName]string{observe.Resource: "1000"}},
		func(ctx context.Context, s *Stage) (Got, error) {
			pod := tolerant(s.pod("other", 1))
			if exact {
				pod.Spec.Affinity = nodeAffinity(ghost, s.node(scheduled).Name)
				kube.SetRequests(pod, `"gpugrp0/A/gpu/a/cards":1`)
			} else {
				pod.Spec.Affinity = nodeAffinity(ghost)
			}
			got, err := s.bound(ctx, pod)
			if got.Outcome == NoEffect && strings.Contains(got.Words, ghost) {
				got.Outcome = Succeeds
			}
			return got, err
		})
}

// nodeAffinity lets a pod go to these nodes alone.
func nodeAffinity(nodes ...string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes,
			}}}},
		}}}
}

// reporting makes the ghost's kubelet say something of its node, and then does what others do.
func reporting(report nodeReport, then Try) Try {
	return func(ctx context.Context, s *Stage) (got Got, err error) {
		if err := s.makeNamespace(ctx); err != nil {
			return Got{}, err
		}
		if err := s.makeGhost(ctx); err != nil {
			return Got{}, err
		}
		defer func() { err = errors.Join(err, s.removeGhost(context.WithoutCancel(ctx))) }()
		counts := map[corev1.ResourceName]string{corev1.ResourcePods: "110", corev1.ResourceCPU: "8",
			corev1.ResourceMemory: "8Gi"}
		for name, count := range report.counts {
			counts[name] = count
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": report.annotations},
			"status":   map[string]any{"capacity": counts, "allocatable": counts},
		})
		if err != nil {
			return Got{}, err
		}
		if got, refused, err := refusal(s.patchGhost(ctx, patch)); refused || err != nil {
			return got, err
		}
		if err := s.awaitGhost(ctx); err != nil {
			return Got{}, err
		}
		return then(ctx, s)
	}
}

// patchGhost makes the ghost's kubelet change its node.
func (s *Stage) patchGhost(ctx context.Context, patch []byte) error {
	kubelet, err := s.cluster.KubeletClient(ghost)
	if err != nil {
		return err
	}
	_, err = kubelet.CoreV1().Nodes().Patch(ctx, ghost, apitypes.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// awaitGhost waits until the scheduler knows the ghost: it has then seen all that its kubelet said
// before a pod is bound that is created now.
func (s *Stage) awaitGhost(ctx context.Context) error {
	probe := kube.NewPod("probe", "localhost/none:1")
	probe.Namespace = s.namespace
	created, err := s.admin.CreatePod(ctx, onGhost(probe))
	if err != nil {
		return err
	}
	_, err = s.admin.AwaitPod(ctx, created, "to be bound to the ghost", kube.Scheduled)
	return err
}

// removeGhost removes the node of the ghost.
func (s *Stage) removeGhost(ctx context.Context) error {
	return s.admin.CoreV1().Nodes().Delete(ctx, ghost, metav1.DeleteOptions{})
}

// count makes a node count a resource, as its administrator may, until restore.
func (s *Stage) count(ctx context.Context, node, name string, count int) (restore func(context.Context) error,
	err error) {
	patch := func(ctx context.Context, value any) error {
		counts := map[string]any{name: value}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": counts, "allocatable": counts}})
		if err != nil {
			return err
		}
		_, err = s.admin.CoreV1().Nodes().Patch(ctx, node, apitypes.MergePatchType, patch, metav1.PatchOptions{},
			"status")
		return err
	}
	return func(ctx context.Context) error { return patch(ctx, nil) }, patch(ctx, fmt.Sprint(count))
}

// bound creates a pod of another user's, and returns that it is bound and where, or who says why
// it is not.
func (s *Stage) bound(ctx context.Context, pod *corev1.Pod) (got Got, err error) {
	return s.boundWithin(ctx, pod, 0)
}

// boundWithin is bound where the scheduler may see only later that the pod fits: that it does not
// is taken for an answer after that time.
func (s *Stage) boundWithin(ctx context.Context, pod *corev1.Pod, limit time.Duration) (got Got, err error) {
	began := time.Now()
	created, err := s.admin.CreatePod(ctx, pod)
	if err != nil {
		return Got{}, err
	}
	what := "pod " + created.Name + " to be bound, or refused for long"
	err = await.Until(ctx, what, func(ctx context.Context) (bool, error) {
		now, err := s.admin.CoreV1().Pods(s.namespace).Get(ctx, created.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if kube.Scheduled(now) {
			got = Got{NoEffect, "the pod is bound to " + now.Spec.NodeName}
			return true, nil
		}
		got = stateOf(now)
		return got.Outcome != "" && time.Since(began) >= limit, nil
	})
	return got, err
}

// unserved returns that an attempt succeeds if the scheduler says that no plugin serves what a pod
// requests.
func unserved(got Got, err error) (Got, error) {
	if got.Outcome == RefusedByScheduler && strings.Contains(got.Words, "no device scheduler") {
		got.Outcome = Succeeds
	}
	return got, err
}
