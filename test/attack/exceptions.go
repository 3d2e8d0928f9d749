// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// Words of the policies that are about exceptions.
const (
	tolerates    = "lets containers start while kubecri is away"
	keepsKubecri = "keeps kubecri on the node"
)

// exceptions are attempts to be excepted from a defence, or to except a node, by an annotation or a
// label. pkg/deviceinfo lists all of them.
func exceptions() []*Attempt {
	open := Want{Outcome: Succeeds}
	tolerant := func(id, what string, try Try) *Attempt {
		return &Attempt{ID: id, Who: Tenant, What: what, Defence: Policies, Try: try, Want: policyElse(tolerates, open)}
	}
	const key = deviceinfo.ToleratedPluginsAnnotation
	first := tolerant("tolerate", "creates a pod that tolerates that kubecri is missing", createTolerant(key))
	first.Sample = true
	attempts := []*Attempt{
		first,
		tolerant("tolerate-pod", "says so in the form for all containers", createTolerant(key+"/pod")),
		tolerant("tolerate-container", "says so in the form for one container", createTolerant(key+"/container.main")),
		tolerant("tolerate-container-dots", "says so for an init container with hyphens in its name",
			createTolerant(key+"/container.a-b-c", func(pod *corev1.Pod) {
				pod.Spec.InitContainers = []corev1.Container{{Name: "a-b-c", Image: image.Busybox,
					Command: []string{"true"}}}
			})),
		tolerant("tolerate-false", "creates it with the value false, to change that later",
			createTolerantWith("false")),
		tolerant("tolerate-template", "has a Job create the pod", jobTolerates),
	}
	written := func(id, what string, write func(ctx context.Context, client *kube.Client, pod *corev1.Pod) error) {
		attempt := tolerant(id, what, func(ctx context.Context, s *Stage) (Got, error) {
			controller, err := s.controller(ctx)
			if err != nil {
				return Got{}, err
			}
			pod := s.pod("tolerant", 0)
			pod.Spec.SchedulerName = absentScheduler
			if pod, err = controller.CreatePod(ctx, pod); err != nil {
				return Got{}, err
			}
			if got, refused, err := refusal(write(ctx, controller, pod)); refused || err != nil {
				return got, err
			}
			return s.hasAnnotation(ctx, pod)
		})
		attempt.Who = Controller
		attempts = append(attempts, attempt)
	}
	patch := []byte(`{"metadata":{"annotations":{"` + key + `":"true"}}}`)
	written("tolerate-patch", "writes so onto a pod that waits", func(ctx context.Context, client *kube.Client,
		pod *corev1.Pod) error {
		return mergePatch(ctx, client, pod, patch)
	})
	written("tolerate-status", "writes so by a patch of the pod's status", func(ctx context.Context,
		client *kube.Client, pod *corev1.Pod) error {
		return mergePatch(ctx, client, pod, patch, "status")
	})
	for _, path := range []string{"pods/binding", "bindings"} {
		id := map[string]string{"pods/binding": "tolerate-binding", "bindings": "tolerate-binding-legacy"}[path]
		written(id, "sends it with a binding, by the resource "+path, func(ctx context.Context, client *kube.Client,
			pod *corev1.Pod) error {
			binding := &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
					Annotations: map[string]string{key: "true"}},
				Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"},
			}
			if path == "bindings" {
				post := client.CoreV1().RESTClient().Post()
				return post.Namespace(pod.Namespace).Resource(path).Body(binding).Do(ctx).Error()
			}
			return client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
		})
	}
	return append(attempts, nodeExceptions()...)
}

// nodeExceptions are those of nodes.
func nodeExceptions() []*Attempt {
	const devices = "kubedevice.io/devices"
	var attempts []*Attempt
	for _, way := range []struct {
		id, what, label, value string
		subresources           []string
	}{
		{"label-devices-removed", "takes the chart's label off a node: kubecri goes", devices, "null", nil},
		{"label-devices-changed", "changes its value", devices, `"false"`, nil},
		{"label-devices-status", "takes it off by a patch of the node's status", devices, "null", []string{"status"}},
		{"label-enrolled-removed", "takes off a node by which vendors' plugins register with kubecri", enrolment.Label,
			"null", nil},
		{"label-group-removed", "takes off a node the label of its group", enrolment.GroupLabel, "null", nil},
		{"label-group-changed", "puts a node into another group: its agent stops", enrolment.GroupLabel, `"other"`,
			nil},
	} {
		attempts = append(attempts, &Attempt{
			ID: way.id, Who: Labeller, What: way.what, Defence: Policies, Alone: true,
			Want: policyElse(keepsKubecri, Want{Outcome: Succeeds}),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				labeller, err := s.labeller(ctx)
				if err != nil {
					return Got{}, err
				}
				name := s.node(forged).Name
				if err := s.patchNode(ctx, s.admin, name, labels(way.label, `"true"`)); err != nil {
					return Got{}, err
				}
				got, refused, err := refusal(s.patchNode(ctx, labeller, name, labels(way.label, way.value),
					way.subresources...))
				if err == nil && !refused {
					got = Got{Succeeds, "the node has another label"}
				}
				return got, errors.Join(err, s.patchNode(ctx, s.admin, name, labels(way.label, "null")))
			},
		})
	}
	return append(attempts, &Attempt{
		ID: "taints-own-kubelet", Who: Kubelet, Defence: Policies,
		What: "takes off a device of its own node the taint by which administrators keep pods away",
		Want: policyElse("a node may not change its annotation KubeDevice/DeviceTaints", Want{Outcome: Succeeds}),
		Try: func(ctx context.Context, s *Stage) (Got, error) {
			if err := s.makeGhost(ctx); err != nil {
				return Got{}, err
			}
			if err := s.patchNode(ctx, s.admin, ghost, annotateTaints(cordonedGPU)); err != nil {
				return Got{}, err
			}
			kubelet, err := s.cluster.KubeletClient(ghost)
			if err != nil {
				return Got{}, err
			}
			err = s.patchNode(ctx, kubelet, ghost, annotateTaints("[]"), "status")
			if got, refused, err := refusal(err); refused || err != nil {
				return got, err
			}
			return Got{Succeeds, "the device has no taint"}, nil
		},
	})
}

// labels returns a merge patch of a label, whose value is JSON.
func labels(key, value string) []byte {
	return []byte(`{"metadata":{"labels":{"` + key + `":` + value + `}}}`)
}

// patchNode patches a node as client.
func (s *Stage) patchNode(ctx context.Context, client *kube.Client, name string, patch []byte,
	subresources ...string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, name, apitypes.MergePatchType, patch, metav1.PatchOptions{},
		subresources...)
	return err
}

// createTolerant makes a tenant create a pod that waits and has that annotation. It succeeds if the
// API server takes it.
func createTolerant(key string, shape ...func(pod *corev1.Pod)) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		pod := s.pod("tolerant", 0)
		pod.Spec.SchedulerName = absentScheduler
		pod.Annotations = map[string]string{key: "true"}
		for _, shape := range shape {
			shape(pod)
		}
		created, err := tenant.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{})
		if got, refused, err := refusal(err); refused || err != nil {
			return got, err
		}
		return s.hasAnnotation(ctx, created)
	}
}

// createTolerantWith is createTolerant with another value.
func createTolerantWith(value string) Try {
	return createTolerant(deviceinfo.ToleratedPluginsAnnotation, func(pod *corev1.Pod) {
		pod.Annotations[deviceinfo.ToleratedPluginsAnnotation] = value
	})
}

// hasAnnotation succeeds if the pod is there with an annotation that the runtime would obey.
func (s *Stage) hasAnnotation(ctx context.Context, pod *corev1.Pod) (Got, error) {
	now, err := s.admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	for key, value := range now.Annotations {
		if strings.HasPrefix(key, deviceinfo.ToleratedPluginsAnnotation) {
			return Got{Succeeds, "the pod has " + key + "=" + value}, nil
		}
	}
	return Got{NoEffect, "the pod has no such annotation"}, nil
}

// jobTolerates makes a tenant create a Job whose pods have the annotation, and finds out whether
// the controller may create them.
func jobTolerates(ctx context.Context, s *Stage) (got Got, err error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	pod := s.pod("tolerant", 0)
	pod.Spec.SchedulerName, pod.Spec.RestartPolicy = absentScheduler, corev1.RestartPolicyNever
	job, err := tenant.BatchV1().Jobs(s.namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "tolerant"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{deviceinfo.ToleratedPluginsAnnotation + "/pod": "true"},
			},
			Spec: pod.Spec,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return Got{}, err
	}
	err = await.Until(ctx, "a pod of job "+job.Name, func(ctx context.Context) (bool, error) {
		pods, err := s.admin.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		if len(pods.Items) > 0 {
			got, err = s.hasAnnotation(ctx, &pods.Items[0])
			return true, err
		}
		events, err := s.admin.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.uid=" + string(job.UID)})
		if err != nil {
			return false, err
		}
		for _, event := range events.Items {
			if event.Reason == "FailedCreate" {
				got = Got{RefusedByAPIServer, event.Message}
			}
		}
		return got.Outcome != "", nil
	})
	background := metav1.DeletePropagationBackground
	return got, errors.Join(err, s.admin.BatchV1().Jobs(s.namespace).Delete(context.WithoutCancel(ctx), job.Name,
		metav1.DeleteOptions{PropagationPolicy: &background}))
}
