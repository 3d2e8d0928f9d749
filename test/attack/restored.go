// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// encoders return an encoded allocation that the container of an attacker's pod gets in the
// runtime.
var encoders = map[string]func(ctx context.Context, s *Stage, pod *corev1.Pod) (string, error){
	"copy": func(ctx context.Context, s *Stage, _ *corev1.Pod) (string, error) {
		return s.encodedOn(ctx, scheduled)
	},
	"other node": func(ctx context.Context, s *Stage, _ *corev1.Pod) (string, error) {
		return s.encodedOn(ctx, forged)
	},
	"changed": func(ctx context.Context, s *Stage, _ *corev1.Pod) (string, error) {
		encoded, err := s.encodedOn(ctx, scheduled)
		return strings.Replace(encoded, "gpu/gpu-", "gpu/gpu-1", 1), err
	},
	"unsigned": func(_ context.Context, s *Stage, pod *corev1.Pod) (string, error) {
		return s.allocationOn(s.node(scheduled).Name, pod.Name, cardOf(devices[scheduled]-1)), nil
	},
	"signed": signed,
}

// restoreContainer has a container in the attacker's pod that has an annotation of encoders, as if
// the runtime had restored it, lets the node lose its checkpoint, and finds out whether the node
// takes the pod for one that was granted devices.
func restoreContainer(ctx context.Context, p *trial, annotation string) (got Got, err error) {
	encode, known := encoders[annotation]
	if !known {
		return Got{}, fmt.Errorf("there is no annotation %q", annotation)
	}
	tenant, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	node := p.node(scheduled)
	pod, err := tenant.RunPod(ctx, clustertest.On(node.Name, p.pod("restored", 0)))
	if err != nil {
		return Got{}, err
	}
	encoded, err := encode(ctx, p.Stage, pod)
	if err != nil {
		return Got{}, err
	}
	if err := node.Kubecri.Kill9(ctx); err != nil {
		return Got{}, err
	}
	err = errors.Join(node.CreateInSandbox(ctx, pod, "restored", map[string]string{grants.Annotation: encoded}),
		os.Remove(filepath.Join(node.Var(), "lib", "kubedevice", "grants")))
	if err := errors.Join(err, node.Kubecri.Start()); err != nil {
		return Got{}, err
	}
	what := "kubecri to read the allocation of pod " + pod.Name + " again"
	err = await.Until(ctx, what, func(ctx context.Context) (bool, error) {
		printed, err := node.RunKubecri(ctx, "grants")
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(printed) {
			if columns := strings.Fields(line); columns[0] == p.namespace && columns[1] == pod.Name {
				got = Got{Succeeds, "the node says that the pod was granted devices: " + strings.TrimSpace(line)}
				return true, nil
			}
		}
		events, err := p.admin.PodEvents(ctx, pod)
		for _, event := range events {
			if event.Reason == "GrantIgnored" {
				got = Got{RefusedByNode, event.Message}
			}
		}
		return got.Outcome != "", err
	})
	return got, err
}

// encodedOn runs a pod of another user's with a device on a node, and returns what its container
// contains.
func (s *Stage) encodedOn(ctx context.Context, index int) (string, error) {
	node := s.node(index)
	pod, err := s.admin.RunPod(ctx, tolerant(clustertest.On(node.Name, s.pod("other", 1))))
	if err != nil {
		return "", err
	}
	return s.annotationOf(ctx, index, pod.Name, grants.Annotation)
}

// signed returns what a container of the pod would contain if it had been granted a free
// device, signed with a copy of the key of the node scheduled.
func signed(ctx context.Context, s *Stage, pod *corev1.Pod) (string, error) {
	node := s.node(scheduled)
	const key = "grant-key"
	content, err := os.ReadFile(filepath.Join(node.Var(), "lib", "kubedevice", key))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(s.run.dir, s.attempt.ID)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, key), content, 0o600)); err != nil {
		return "", err
	}
	checkpoint := grants.New(grants.Options{
		Path: filepath.Join(dir, "grants"), Node: node.Name, Runtime: noContainers{},
		Pods: pods.NewRegistry(0),
	})
	defer checkpoint.Close()
	if err := checkpoint.Reconcile(ctx); err != nil {
		return "", err
	}
	card := cardOf(devices[scheduled] - 1)
	return checkpoint.EncodePart(grants.Allocation{
		PodUID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
		PodInfo: &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"restored": {
			DevRequests: types.ResourceList{request: 1}, AllocateFrom: types.ResourceLocation{request: card},
		}}},
	}, "restored")
}

// noContainers is a runtime without containers.
type noContainers struct{}

// Pods implements grants.Runtime.
func (noContainers) Pods(context.Context) (map[string]grants.RuntimeState, error) { return nil, nil }
