// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// createPod creates the attempt's pod.
func createPod(ctx context.Context, p *trial, _ nothing) (Got, error) {
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	pod, err := p.manifest()
	if err != nil {
		return Got{}, err
	}
	p.created, err = client.CreatePod(ctx, pod)
	return Got{}, err
}

// manifest returns the attempt's pod. What its manifest does not say is as in a pod with a
// container main that is idle.
func (p *trial) manifest() (*corev1.Pod, error) {
	raw, err := json.Marshal(p.script.Pod)
	if err != nil {
		return nil, err
	}
	if raw, err = p.expand(raw); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := strict(raw, pod); err != nil {
		return nil, err
	}
	pod.Namespace = p.namespace
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Image == "" {
				containers[i].Image = image.Busybox
			}
			if containers[i].Command == nil {
				containers[i].Command = clustertest.Idle
			}
		}
	}
	return pod, nil
}

// createConfigMap creates a ConfigMap with data, and so many keys with a number that all have one
// value.
func createConfigMap(ctx context.Context, p *trial, arguments struct {
	Name     string            `json:"name"`
	Data     map[string]string `json:"data"`
	Numbered struct {
		Count int    `json:"count"`
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"numbered"`
}) (Got, error) {
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	data := mergeMaps(arguments.Data, nil)
	for i := range arguments.Numbered.Count {
		data[fmt.Sprintf(arguments.Numbered.Key, i)] = arguments.Numbered.Value
	}
	_, err = client.CoreV1().ConfigMaps(p.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: arguments.Name}, Data: data,
	}, metav1.CreateOptions{})
	return Got{}, err
}

// runVictim runs a pod of another user's, to which the scheduler gives a device of the node
// scheduled: it is the attempt's device from then on.
func runVictim(ctx context.Context, p *trial, arguments struct {
	Annotations map[string]string `json:"annotations"`
}) (Got, error) {
	victim, err := p.victimThat(ctx, arguments.Annotations)
	if err != nil {
		return Got{}, err
	}
	p.created, p.device, p.card = victim.pod, victim.device, victim.card
	return Got{}, nil
}

// deletePod deletes the pod that was created last, and waits until it is gone.
func deletePod(ctx context.Context, p *trial, _ nothing) (Got, error) {
	if p.created == nil {
		return Got{}, errors.New("no pod was created")
	}
	return Got{}, p.admin.DeletePod(ctx, p.created)
}

// awaitDevice succeeds if a container of the pod can open the attempt's device.
func awaitDevice(ctx context.Context, p *trial, _ nothing) (Got, error) {
	return p.settle(ctx, p.created)
}

// awaitRunning succeeds if the pod runs.
func awaitRunning(ctx context.Context, p *trial, _ nothing) (Got, error) {
	_, got, err := p.awaitState(ctx, p.created)
	return got, err
}

// awaitDebugContainer waits until the pod's debug container runs.
func awaitDebugContainer(ctx context.Context, p *trial, _ nothing) (Got, error) {
	_, err := p.admin.AwaitPod(ctx, p.created, "to run its debug container", func(now *corev1.Pod) bool {
		statuses := now.Status.EphemeralContainerStatuses
		return len(statuses) > 0 && statuses[0].State.Running != nil
	})
	return Got{}, err
}

// awaitScheduled succeeds if the scheduler binds the pod.
func awaitScheduled(ctx context.Context, p *trial, _ nothing) (Got, error) {
	return p.isScheduled(ctx, p.created)
}

// readLeniently succeeds if encoding/json reads an allocation of the device in the pod's
// annotation.
func readLeniently(_ context.Context, p *trial, _ nothing) (Got, error) {
	pod, err := p.manifest()
	if err != nil {
		return Got{}, err
	}
	return lenient(pod.Annotations[deviceinfo.Annotation], string(p.card))
}
