// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// absences are attempts of a tenant whose container the runtime creates while kubecri is not
// registered as its NRI plugin. The container gets what it requests of NVIDIA's runtime then. The
// node refuses it if kubecri ends it when it is back.
func absences() []*Attempt {
	var attempts []*Attempt
	for _, way := range []struct {
		id, what  string
		shape     func(pod *corev1.Pod)
		annotated bool // with an annotation that the pod gets when its sandbox runs
	}{
		{"away-env", "sets " + visibleDevices + " to all in a container that is created then",
			func(*corev1.Pod) {}, false},
		{"away-made-up", "does so in a pod that names its node, with a request for a made-up resource of the vendor's",
			func(pod *corev1.Pod) {
				madeUp := corev1.ResourceList{"nvidia.com/bogus": resource.MustParse("1")}
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: madeUp, Requests: madeUp}
			}, false},
		{"away-forged", "forges the annotation KubeDevice/Grant, which the runtime passes from pods to containers",
			awaitAnnotation, true},
	} {
		attempt := func(judge func(*Stage, context.Context, *corev1.Pod) (Got, error)) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				return s.whileAway(ctx, way.shape, way.annotated, judge)
			}
		}
		attempts = append(attempts, &Attempt{
			ID: way.id, Who: Tenant, What: way.what, Defence: Firewall, Alone: true,
			Want: everywhere(RefusedByNode, visibleDevices+"=all asks for devices that it was not allocated"),
			Try:  attempt((*Stage).ended), Off: Off{How: "the device firewall is off", Try: attempt((*Stage).stays)},
		})
	}
	return attempts
}

// whileAway runs a pod with the variable while kubecri is away, and judges it by what becomes of it
// when kubecri is back.
func (s *Stage) whileAway(
	ctx context.Context, shape func(*corev1.Pod), annotated bool,
	judge func(*Stage, context.Context, *corev1.Pod) (Got, error),
) (Got, error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	node := s.node(scheduled)
	pod := s.pod("greedy", 0)
	pod.Spec.NodeName = node.Name
	env("all")(pod)
	shape(pod)
	if err := node.Kubecri.Kill9(ctx); err != nil {
		return Got{}, err
	}
	pod, err = s.startPast(ctx, tenant, pod, annotated)
	if err := errors.Join(err, node.Kubecri.Start()); err != nil {
		return Got{}, err
	}
	return judge(s, ctx, pod)
}

// startPast creates a pod, and waits until its container runs with what it requests.
func (s *Stage) startPast(
	ctx context.Context, tenant *kube.Client, pod *corev1.Pod, annotated bool,
) (*corev1.Pod, error) {
	pod, err := tenant.CreatePod(ctx, pod)
	if err != nil {
		return nil, err
	}
	if annotated {
		if err := s.annotateLate(ctx, tenant, pod); err != nil {
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
	if err != nil || !annotated {
		return pod, err
	}
	spec, err := s.runtimeSpecOf(ctx, pod.Name, "main")
	if err == nil && spec.Annotations[grants.Annotation] != foreignGrant {
		err = fmt.Errorf("the runtime passed the annotations %q to the container", spec.Annotations)
	}
	return pod, err
}

// foreignGrant is an annotation that this node has not signed.
const foreignGrant = "v1.AAAA.{}"

// awaitAnnotation has the kubelet create the container main when it knows that the pod has the
// forged annotation: its volumes may have that before. The second container fails, and starts
// again, until the kubelet creates it from such a pod.
func awaitAnnotation(pod *corev1.Pod) {
	pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
			Path: "annotations", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"},
		}}},
	}}}
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "first", Image: image.Busybox,
		Command:      []string{"sh", "-c", "until grep -q " + foreignGrant + " /info/annotations; do sleep 0.1; done"},
		VolumeMounts: []corev1.VolumeMount{{Name: "info", MountPath: "/info"}},
	}, {
		Name: "second", Image: image.Busybox, Command: []string{"sh", "-c", `test -n "$GRANT"`},
		Env: []corev1.EnvVar{{Name: "GRANT", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.annotations['" + grants.Annotation + "']"}}}},
	}}
}

// annotateLate gives the pod the forged annotation when its first container runs. One that its
// sandbox has, too, is known to be the pod's.
func (s *Stage) annotateLate(ctx context.Context, tenant *kube.Client, pod *corev1.Pod) error {
	if _, err := s.admin.AwaitPod(ctx, pod, "to run its first container", func(now *corev1.Pod) bool {
		return len(now.Status.InitContainerStatuses) > 0 && now.Status.InitContainerStatuses[0].State.Running != nil
	}); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{grants.Annotation: foreignGrant}}})
	if err != nil {
		return err
	}
	_, err = tenant.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}

// ended waits for the event that says why kubecri has ended the pod's container.
func (s *Stage) ended(ctx context.Context, pod *corev1.Pod) (got Got, err error) {
	err = await.Until(ctx, "kubecri to end the container of pod "+pod.Name, func(ctx context.Context) (bool, error) {
		events, err := s.admin.PodEvents(ctx, pod)
		for _, event := range events {
			if event.Reason == "ContainerEnded" {
				got = Got{RefusedByNode, event.Message}
			}
		}
		return got.Outcome != "", err
	})
	return got, err
}

// stays waits until a container gets a device: before that, kubecri has inspected all that run. The
// attempt succeeds if the pod's container still runs, with what it requests.
func (s *Stage) stays(ctx context.Context, pod *corev1.Pod) (Got, error) {
	if _, err := s.admin.RunPod(ctx, clustertest.On(s.node(scheduled).Name, s.pod("other", 1))); err != nil {
		return Got{}, err
	}
	now, err := s.admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	if restarts := now.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		return Got{NoEffect, fmt.Sprintf("the container was started again %d times", restarts)}, nil
	}
	return s.requests(ctx, pod.Name, "main")
}
