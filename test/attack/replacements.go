// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// replacements are attempts to turn in-pod failover to account: to have devices of others replaced,
// or to get other devices than the scheduler gave.
func replacements() []*Attempt {
	schedulerAlone := Want{RefusedByAPIServer, "only the device scheduler may"}
	unstarted := Off{
		How: "no policies, no seals, and it changes the allocation before the first container is created",
		Try: changeBeforeStart,
	}
	return []*Attempt{
		{
			ID: "replace-foreign", Who: Kubelet, Defence: OneNode, Alone: true, Sample: true,
			What: "says that the device of another node's pod has failed, and asks the scheduler for another one",
			Want: everywhere(NoEffect, "has the allocation that it had"),
			Try:  askingFor(foreignPod),
			Off:  Off{How: "the pod is on the node that lies", Try: askingFor(ownPod)},
		},
		{
			ID: "replace-older", Who: Controller, Defence: Grants, Alone: true,
			What: "writes back, with its seal, the allocation that its running pod had before its device was replaced",
			Want: map[Setting]Want{
				Both: schedulerAlone, SealsAlone: {NoEffect, "can open"}, PoliciesAlone: schedulerAlone,
			},
			Try: rewriting(func(ctx context.Context, s *Stage, own holder) (*corev1.Pod, map[string]string, error) {
				if !s.setting.seals() { // nothing is replaced: any other allocation does
					annotations, err := s.laterOf(own)
					return own.pod, annotations, err
				}
				now, err := s.replace(ctx, own)
				return now, map[string]string{
					deviceinfo.Annotation: own.pod.Annotations[deviceinfo.Annotation],
					seal.Annotation:       own.pod.Annotations[seal.Annotation],
				}, err
			}),
			Off: unstarted,
		},
		{
			ID: "replace-forged", Who: Controller, Defence: Grants, Alone: true,
			What: "writes a later generation of its running pod's allocation with another device, and a seal with a " +
				"key of its own",
			Want: map[Setting]Want{
				Both: schedulerAlone, SealsAlone: {NoEffect, "can open"}, PoliciesAlone: schedulerAlone,
			},
			Try: rewriting(func(_ context.Context, s *Stage, own holder) (*corev1.Pod, map[string]string, error) {
				annotations, err := s.laterOf(own)
				return own.pod, annotations, err
			}),
			Off: unstarted,
		},
	}
}

// rewriting makes a controller write annotations onto its pod that runs and wants its device
// replaced when it fails, and ends the container. It succeeds if the next one can open another
// device than this one. rewrite returns the pod as it is then, and the annotations.
func rewriting(
	rewrite func(ctx context.Context, s *Stage, own holder) (*corev1.Pod, map[string]string, error),
) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		controller, err := s.controller(ctx)
		if err != nil {
			return Got{}, err
		}
		own, err := s.victimThat(ctx, clustertest.OnFailure("Replace"))
		if err != nil {
			return Got{}, err
		}
		pod, annotations, err := rewrite(ctx, s, own)
		if err != nil {
			return Got{}, err
		}
		before, err := s.visible(ctx, pod, "main")
		if err != nil {
			return Got{}, err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			return Got{}, err
		}
		if got, refused, err := refusal(mergePatch(ctx, controller, pod, patch)); refused || err != nil {
			return got, err
		}
		if pod, err = s.admin.RestartContainer(ctx, pod); err != nil {
			return Got{}, err
		}
		after, err := s.visible(ctx, pod, "main")
		switch {
		case err != nil:
			return Got{}, err
		case !slices.Equal(before, after):
			return Got{Succeeds, fmt.Sprintf("the next container can open %q, not %q", after, before)}, nil
		}
		return Got{NoEffect, fmt.Sprintf("the next container can open %q, as before", after)}, nil
	}
}

// laterOf returns the annotations of a later generation of a pod's allocation, with another device
// and a seal that the attacker made.
func (s *Stage) laterOf(own holder) (map[string]string, error) {
	card := cardOf(0)
	if card == own.card {
		card = cardOf(1)
	}
	annotation := s.allocationOn(own.pod.Spec.NodeName, own.pod.Name, card)
	claimed, err := deviceinfo.DecodePod(annotation)
	if err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	signer, err := seal.NewSigner(key)
	if err != nil {
		return nil, err
	}
	sealed, err := signer.Seal(seal.Decision{
		UID: own.pod.UID, Namespace: own.pod.Namespace, Name: own.pod.Name, Node: own.pod.Spec.NodeName,
		Allocation: seal.DigestOf(claimed), Time: time.Now(), Generation: 1,
	})
	return map[string]string{deviceinfo.Annotation: annotation, seal.Annotation: sealed}, err
}

// replace lets the device of a pod fail, waits until the pod has another one, and mends the device.
// It returns the pod as it is then.
func (s *Stage) replace(ctx context.Context, own holder) (now *corev1.Pod, err error) {
	node := s.node(scheduled).Name
	if err := s.setHealth(own.device); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.setHealth()) }()
	first := own.pod.Status.ContainerStatuses[0].ContainerID
	now, err = s.admin.AwaitPod(ctx, own.pod, "to have another device", func(now *corev1.Pod) bool {
		return kube.Ready(now) && now.Status.ContainerStatuses[0].ContainerID != first
	})
	if err != nil {
		return nil, err
	}
	if err := s.setHealth(); err != nil {
		return nil, err
	}
	_, err = s.admin.AwaitNode(ctx, node, "to have healthy devices alone", func(now *corev1.Node) bool {
		_, unhealthy := now.Annotations[deviceinfo.UnhealthyAnnotation]
		return !unhealthy
	})
	return now, err
}

// setHealth describes the devices of the node scheduled, of which these have failed.
func (s *Stage) setHealth(unhealthy ...string) error {
	text := inventory(devices[scheduled])
	for _, id := range unhealthy {
		text += "unhealthy: [" + id + "]\n"
	}
	file := filepath.Join(s.run.dir, "node-1.yaml")
	return errors.Join(os.WriteFile(file+".next", []byte(text), 0o644), os.Rename(file+".next", file))
}

// foreignPod runs a pod on the node scheduled.
func foreignPod(ctx context.Context, s *Stage) (*corev1.Pod, func(context.Context) error, error) {
	victim, err := s.victimThat(ctx, clustertest.OnFailure("Replace"))
	return victim.pod, func(context.Context) error { return nil }, err
}

// ownPod has a scheduler with seals bind a pod to the ghost.
func ownPod(ctx context.Context, s *Stage) (pod *corev1.Pod, stop func(context.Context) error, err error) {
	scheduler, err := s.startScheduler(ctx, nil, "--device-seal-key="+s.run.keys.private)
	if err != nil {
		return nil, nil, err
	}
	pod = onGhost(s.pod("victim", 1))
	pod.Spec.SchedulerName = s.attempt.ID
	pod.Annotations = clustertest.OnFailure("Replace")
	if pod, err = s.admin.CreatePod(ctx, pod); err == nil {
		pod, err = s.admin.AwaitPod(ctx, pod, "to be bound to the ghost", kube.Scheduled)
	}
	return pod, scheduler.Kill9, err
}

// askingFor makes the ghost's kubelet ask for another device for a pod. It succeeds if the pod gets
// one.
func askingFor(
	run func(ctx context.Context, s *Stage) (pod *corev1.Pod, stop func(context.Context) error, err error),
) Try {
	return lying(lie{
		annotations: map[string]string{deviceinfo.Annotation: ghostGPUs()},
		counts:      map[corev1.ResourceName]string{observe.Resource: "2"},
	}, func(ctx context.Context, s *Stage) (got Got, err error) {
		pod, stop, err := run(ctx, s)
		if stop != nil {
			defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
		}
		if err != nil {
			return Got{}, err
		}
		patch, err := s.askingPatch(pod)
		if err != nil {
			return Got{}, err
		}
		if err := s.patchGhost(ctx, patch); err != nil {
			return Got{}, err
		}
		before := pod.Annotations[deviceinfo.Annotation]
		limited, cancel := context.WithTimeout(ctx, undoLimit)
		defer cancel()
		_, err = s.admin.AwaitPod(limited, pod, "to have another device", func(now *corev1.Pod) bool {
			return now.Annotations[deviceinfo.Annotation] != before
		})
		switch {
		case err == nil:
			return Got{Succeeds, "pod " + pod.Name + " has another allocation"}, nil
		case ctx.Err() == nil && limited.Err() != nil:
			return Got{NoEffect, "pod " + pod.Name + " has the allocation that it had"}, nil
		}
		return Got{}, err
	})
}

// ghostGPUs is the inventory of a node with two GPUs, of which these have failed.
func ghostGPUs(failed ...types.ResourceName) string {
	capacity := map[types.ResourceName]int64{
		"resource/group/gpu/a/cards": 1, "resource/group/gpu/b/cards": 1, types.ResourceName(observe.Resource): 2,
	}
	allocatable := maps.Clone(capacity)
	for _, name := range failed {
		delete(allocatable, name)
	}
	text, err := json.Marshal(map[string]any{"capacity": capacity, "allocatable": allocatable})
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return string(text)
}

// askingPatch returns a patch of the ghost that says that a pod's device has failed, and asks for
// another one.
func (s *Stage) askingPatch(pod *corev1.Pod) ([]byte, error) {
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		return nil, err
	}
	failed := slices.Collect(maps.Values(allocation.RunningContainers["main"].AllocateFrom))
	var said []deviceinfo.UnhealthyDevice
	for _, from := range failed {
		said = append(said, deviceinfo.UnhealthyDevice{
			Device: deviceinfo.DevicePath(path.Dir(string(from))), Reason: "Xid79", Since: time.Unix(0, 0).UTC(),
		})
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		deviceinfo.Annotation:          ghostGPUs(failed...),
		deviceinfo.UnhealthyAnnotation: deviceinfo.EncodeUnhealthy(said, deviceinfo.MaxUnhealthyBytes),
		deviceinfo.ReplacementsAnnotation: deviceinfo.EncodeReplacements([]deviceinfo.Replacement{
			{UID: pod.UID, Containers: []string{"main"}},
		}, deviceinfo.MaxReplacementsBytes),
	}}})
}
