// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// rewriteAllocation writes an allocation onto a running pod: an older one of its own, or a forged
// one.
func rewriteAllocation(ctx context.Context, p *trial, which string) (Got, error) {
	return rewriting(func(ctx context.Context, s *Stage, own holder) (*corev1.Pod, map[string]string, error) {
		if which != "older" || !s.setting.seals() { // without seals nothing is replaced: any other one does
			annotations, err := s.laterOf(own)
			return own.pod, annotations, err
		}
		now, err := s.replace(ctx, own)
		return now, map[string]string{
			deviceinfo.Annotation: own.pod.Annotations[deviceinfo.Annotation],
			seal.Annotation:       own.pod.Annotations[seal.Annotation],
		}, err
	})(ctx, p.Stage)
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

// replace lets the device of a pod fail, waits until the pod has another one, and repairs the
// device. It returns the pod as it is then.
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
