// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// runWhileAway creates the attempt's pod while kubecri is killed, and starts kubecri when the
// container runs with what it requests. With a grant, the pod gets that annotation when its sandbox
// runs. A plugin of the resource to serve registers with the kubelet before kubecri starts.
func runWhileAway(ctx context.Context, p *trial, arguments struct {
	Grant string `json:"grant"`
	Serve string `json:"serve"`
}) (Got, error) {
	tenant, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	pod, err := p.manifest()
	if err != nil {
		return Got{}, err
	}
	kubecri := p.node(scheduled).Kubecri
	if err := kubecri.Kill9(ctx); err != nil {
		return Got{}, err
	}
	p.created, err = p.startPast(ctx, tenant, pod, arguments.Grant)
	if err == nil && arguments.Serve != "" {
		_, err = serveDevicePlugin(ctx, p, servedPlugin{Resource: arguments.Serve})
	}
	return Got{}, errors.Join(err, kubecri.Start())
}

// startPast creates a pod, and waits until its container runs with what it requests.
func (s *Stage) startPast(
	ctx context.Context, tenant *kube.Client, pod *corev1.Pod, grant string,
) (*corev1.Pod, error) {
	pod, err := tenant.CreatePod(ctx, pod)
	if err != nil {
		return nil, err
	}
	if grant != "" {
		if err := s.annotateLate(ctx, tenant, pod, grant); err != nil {
			return nil, err
		}
	}
	if pod, err = s.admin.AwaitPod(ctx, pod, "to run", kube.Ready); err != nil {
		return nil, err
	}
	got, err := s.requests(ctx, pod.Name, "main")
	if err == nil && got.Outcome != Succeeds {
		err = fmt.Errorf("while kubecri is away, %s", got.Words)
	}
	if err != nil || grant == "" {
		return pod, err
	}
	spec, err := s.runtimeSpecOf(ctx, pod.Name, "main")
	if err == nil && spec.Annotations[grants.Annotation] != grant {
		err = fmt.Errorf("the runtime passed the annotations %q to the container", spec.Annotations)
	}
	return pod, err
}

// annotateLate gives the pod the forged annotation when its first container runs. One that its
// sandbox has, too, is known to be the pod's.
func (s *Stage) annotateLate(ctx context.Context, tenant *kube.Client, pod *corev1.Pod, grant string) error {
	if _, err := s.admin.AwaitPod(ctx, pod, "to run its first container", func(now *corev1.Pod) bool {
		return len(now.Status.InitContainerStatuses) > 0 && now.Status.InitContainerStatuses[0].State.Running != nil
	}); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{grants.Annotation: grant}}})
	if err != nil {
		return err
	}
	_, err = tenant.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}

// awaitEnd waits for the event that says why kubecri has ended the pod's container.
func awaitEnd(ctx context.Context, p *trial, _ nothing) (got Got, err error) {
	what := "kubecri to end the container of pod " + p.created.Name
	err = await.Until(ctx, what, func(ctx context.Context) (bool, error) {
		events, err := p.admin.PodEvents(ctx, p.created)
		for _, event := range events {
			if event.Reason == "ContainerEnded" {
				got = Got{RefusedByNode, event.Message}
			}
		}
		return got.Outcome != "", err
	})
	return got, err
}

// awaitThatContainerStays waits until a container gets a device: before that, kubecri has inspected
// all that run. The attempt succeeds if the pod's container still runs, with what it requests.
func awaitThatContainerStays(ctx context.Context, p *trial, _ nothing) (Got, error) {
	pod := p.created
	if _, err := p.admin.RunPod(ctx, clustertest.On(p.node(scheduled).Name, p.pod("other", 1))); err != nil {
		return Got{}, err
	}
	now, err := p.admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	if restarts := now.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		return Got{NoEffect, fmt.Sprintf("the container was started again %d times", restarts)}, nil
	}
	return p.requests(ctx, pod.Name, "main")
}
