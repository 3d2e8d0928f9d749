// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// Words of the policies.
const (
	mayWrite  = "which only the device scheduler may write"
	mayChange = "only the device scheduler may change it"
	maySend   = "only the device scheduler may send the annotation"
	isNode    = "only the node itself may change its annotation"
)

// notOurs is what the node says of a pod that the device scheduler did not bind.
const notOurs = "the device scheduler did not bind the pod"

// noSeal is what the node says of an allocation without a seal.
const noSeal = "the allocation has no seal"

// forgeries are attempts to get a device that the scheduler did not give.
func forgeries() []*Attempt {
	node := Want{RefusedByNode, noSeal}
	forge := func(id, what string, edit func(s *Stage, pod *corev1.Pod)) *Attempt {
		return &Attempt{
			ID: id, Who: Tenant, What: what, Defence: Policies,
			Try: createForged(edit), Want: policyElse(mayWrite, node),
		}
	}
	write := func(id, what string, write writeFunc) *Attempt {
		return &Attempt{
			ID: id, Who: Controller, What: what + ", and binds the pod", Defence: Policies,
			Try: writeAndBind(write), Want: policyElse(mayWrite, node),
		}
	}
	attempts := []*Attempt{
		forge("create-bound", "creates a pod with a node and an allocation", func(*Stage, *corev1.Pod) {}),
		forge("create-bound-init", "creates such a pod, with the device for an init container", initContainer),
		forge("create-bound-sidecar", "creates such a pod, with the device for a sidecar", func(s *Stage,
			pod *corev1.Pod) {
			text := pod.Annotations[deviceinfo.Annotation]
			initContainer(s, pod)
			pod.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			pod.Annotations[deviceinfo.Annotation] = text // a sidecar stands among the running containers
		}),
		forge("create-bound-second", "creates such a pod, with the device for its second container too",
			func(_ *Stage, pod *corev1.Pod) {
				second := pod.Spec.Containers[0]
				second.Name = "second"
				pod.Spec.Containers = append(pod.Spec.Containers, second)
				text := pod.Annotations[deviceinfo.Annotation]
				pod.Annotations[deviceinfo.Annotation] = strings.Replace(text, `"main":`,
					`"second":{"devrequests":{"`+string(request)+`":1},"allocatefrom":{"`+string(request)+`":"`+
						string(cardOf(reservedCard))+`"}},"main":`, 1)
			}),
		forge("create-bound-no-limit", "creates such a pod without any limit, unseen by quotas",
			func(_ *Stage, pod *corev1.Pod) {
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			}),
		forge("create-bound-other-scheduler", "creates such a pod that names another scheduler",
			func(_ *Stage, pod *corev1.Pod) { pod.Spec.SchedulerName = "default-scheduler-2" }),
		forge("create-bound-host", "creates such a pod in the network of its node",
			func(_ *Stage, pod *corev1.Pod) { pod.Spec.HostNetwork = true }),
		forge("create-bound-static", "creates such a pod that says it comes from a file",
			func(_ *Stage, pod *corev1.Pod) { pod.Annotations["kubernetes.io/config.source"] = "file" }),
		forge("create-bound-grant", "creates such a pod with the annotation KubeDevice/Grant",
			func(s *Stage, pod *corev1.Pod) { pod.Annotations["KubeDevice/Grant"] = s.allocation(pod.Name) }),
		forge("create-bound-spaces", "creates such a pod, with white space all over the allocation",
			func(_ *Stage, pod *corev1.Pod) {
				text := pod.Annotations[deviceinfo.Annotation]
				pod.Annotations[deviceinfo.Annotation] = strings.NewReplacer(`:`, " :\n\t", `,`, " ,\r\n").Replace(text)
			}),
		forge("create-bound-unknown", "creates such a pod, with unknown fields in the allocation",
			func(_ *Stage, pod *corev1.Pod) {
				text := pod.Annotations[deviceinfo.Annotation]
				pod.Annotations[deviceinfo.Annotation] = `{"later":{"a":[1,{}]},` + text[1:]
			}),
		write("patch-waiting", "writes an allocation onto a pod that waits, by patch", patchPod()),
		write("patch-waiting-status", "writes it by a patch of the pod's status", patchPod("status")),
		write("put-waiting", "writes it by replacing the pod", putPod),
		write("put-waiting-status", "writes it by replacing the pod's status", putStatus),
		write("apply-waiting", "writes it by server-side apply", applyPod),
		write("json-patch-waiting", "writes it by a JSON patch", jsonPatchPod),
		{
			ID: "bind-allocation", Who: Controller, What: "binds a pod that waits, with an allocation in the Binding",
			Defence: Policies, Want: policyElse(maySend, node), Sample: true,
			Try: bindForged(func(ctx context.Context, s *Stage, client *kube.Client, pod *corev1.Pod) error {
				return s.bind(ctx, client, pod, map[string]string{deviceinfo.Annotation: s.allocation(pod.Name)})
			}),
		},
		{
			ID: "bind-allocation-legacy", Who: Controller, What: "does so by the older resource bindings",
			Defence: Policies, Want: policyElse(maySend, node),
			Try: bindForged(func(ctx context.Context, s *Stage, client *kube.Client, pod *corev1.Pod) error {
				return client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("bindings").
					Body(&corev1.Binding{
						ObjectMeta: metav1.ObjectMeta{
							Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
							Annotations: map[string]string{deviceinfo.Annotation: s.allocation(pod.Name)},
						},
						Target: corev1.ObjectReference{Kind: "Node", Name: s.node(forged).Name},
					}).Do(ctx).Error()
			}),
		},
		{
			ID: "copy-other-pod", Who: Tenant, What: "creates a pod with a node and another pod's allocation",
			Defence: Checks, Want: policyElse(mayWrite, Want{RefusedByNode, `is for pod "another"`}),
			Try: createForged(func(s *Stage, pod *corev1.Pod) {
				pod.Annotations[deviceinfo.Annotation] = s.allocation("another")
			}),
			Off: Off{How: "no policies, no seals, its own name in the allocation", Try: createForged(untouched)},
		},
		{
			ID: "copy-other-node", Who: Tenant, What: "creates a pod with a node and an allocation for another node",
			Defence: Checks, Want: policyElse(mayWrite, Want{RefusedByNode, `is for node "node-1"`}),
			Try: createForged(func(s *Stage, pod *corev1.Pod) {
				pod.Annotations[deviceinfo.Annotation] = s.allocationOn(s.node(scheduled).Name, pod.Name, s.card)
			}),
			Off: Off{How: "no policies, no seals, its own node in the allocation", Try: createForged(untouched)},
		},
		{
			ID: "no-such-device", Who: Tenant,
			What:    "creates a pod with a node and a device that the node does not have",
			Defence: Checks, Want: policyElse(mayWrite, Want{RefusedByNode, noSeal}),
			Try: createForged(func(s *Stage, pod *corev1.Pod) {
				pod.Annotations[deviceinfo.Annotation] = s.allocationOn(s.node(forged).Name, pod.Name, cardOf(100_000))
			}),
			Off: Off{How: "no policies, no seals, a device that the node has", Try: createForged(untouched)},
		},
		{
			ID: "no-device-name", Who: Tenant, What: "creates a pod with a node, and a path of the node for a device",
			Defence: Checks, Want: policyElse(mayWrite, Want{RefusedByNode, noSeal}),
			Try: createForged(func(s *Stage, pod *corev1.Pod) {
				text := pod.Annotations[deviceinfo.Annotation]
				pod.Annotations[deviceinfo.Annotation] = strings.Replace(text, string(s.card), "dev/mem", 1)
			}),
			Off: Off{How: "no policies, no seals, the name of a device", Try: createForged(untouched)},
		},
		{
			ID: "no-quantity", Who: Tenant, What: "creates a pod with a node and a device of which it takes nothing",
			Defence: Checks, Want: policyElse(mayWrite, Want{RefusedByNode, noSeal}),
			Try: createForged(func(_ *Stage, pod *corev1.Pod) {
				text := pod.Annotations[deviceinfo.Annotation]
				pod.Annotations[deviceinfo.Annotation] = strings.Replace(text, `/cards":1`, `/cards":0`, 1)
			}),
			Off: Off{How: "no policies, no seals, a quantity of 1", Try: createForged(untouched)},
		},
		{
			ID: "device-in-use", Who: Tenant, What: "creates a pod with a node and the device that another pod holds",
			Defence: Checks, Want: policyElse(mayWrite, Want{RefusedByNode, noSeal}), Sample: true,
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				victim, err := s.victim(ctx)
				if err != nil {
					return Got{}, err
				}
				s.device, s.card = victim.device, victim.card
				return createForged(func(s *Stage, pod *corev1.Pod) {
					pod.Spec.NodeName = s.node(scheduled).Name
					pod.Annotations[deviceinfo.Annotation] = s.allocationOn(pod.Spec.NodeName, pod.Name, s.card)
				})(ctx, s)
			},
			Off: Off{How: "no policies, no seals, no pod holds the device", Try: createForged(untouched)},
		},
		{
			ID: "own-node", Who: Tenant, What: "creates a device pod with a node and without an allocation",
			Defence: Checks, Want: everywhere(RefusedByNode, notOurs), Sample: true,
			Try: startsOn(forged),
			Off: Off{How: "the kubelet calls the runtime without kubecri", Try: startsWithout(withoutKubecri)},
		},
		{
			ID: "own-binding", Who: Controller, What: "binds a device pod that waits, without an allocation",
			Defence: Checks, Want: everywhere(RefusedByNode, notOurs),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				return bindForged(func(ctx context.Context, s *Stage, client *kube.Client, pod *corev1.Pod) error {
					return s.bind(ctx, client, pod, nil)
				})(ctx, s)
			},
			Off: Off{How: "the kubelet calls the runtime without kubecri", Try: startsWithout(withoutKubecri)},
		},
	}
	attempts[0].Sample = true
	return attempts
}

// reservedCard is a card that no attempt has as its own.
const reservedCard = 399

func untouched(*Stage, *corev1.Pod) {}

// initContainer gives the stage's device to an init container, which waits, and so to main no more.
// The pod is judged by the container that has it.
func initContainer(_ *Stage, pod *corev1.Pod) {
	container := pod.Spec.Containers[0]
	pod.Spec.InitContainers = []corev1.Container{container}
	pod.Spec.Containers[0] = corev1.Container{Name: "rest", Image: image.Busybox, Command: clustertest.Idle}
	text := pod.Annotations[deviceinfo.Annotation]
	pod.Annotations[deviceinfo.Annotation] = strings.Replace(text, "runningcontainer", "initcontainer", 1)
}

// createForged makes a tenant create a forged pod as edit changes it.
func createForged(edit func(s *Stage, pod *corev1.Pod)) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		pod := s.forgedPod()
		edit(s, pod)
		return s.create(ctx, tenant, pod)
	}
}

// startsOn makes a tenant create a device pod with a node and without an allocation.
func startsOn(node int) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		return createForged(func(s *Stage, pod *corev1.Pod) {
			pod.Spec.NodeName = s.node(node).Name
			pod.Annotations = nil
		})(ctx, s)
	}
}

// startsWithout makes a tenant create a device pod on a node whose kubelet counts devices that
// no plugin allocates. It succeeds when the pod runs.
func startsWithout(node int) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		patch := []byte(`{"status":{"capacity":{"nvidia.com/gpu":"8"},"allocatable":{"nvidia.com/gpu":"8"}}}`)
		if _, err := s.admin.CoreV1().Nodes().Patch(ctx, s.node(node).Name, apitypes.MergePatchType, patch,
			metav1.PatchOptions{}, "status"); err != nil {
			return Got{}, err
		}
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		pod := s.pod("own-node", 1)
		pod.Spec.NodeName = s.node(node).Name
		return s.runs(ctx, tenant, pod)
	}
}

// writeFunc writes an annotation onto a pod.
type writeFunc func(ctx context.Context, client *kube.Client, pod *corev1.Pod, annotation string) error

// writeAndBind makes a controller write an allocation onto a pod of its own that waits, and bind
// the pod.
func writeAndBind(write writeFunc) Try {
	return bindForged(func(ctx context.Context, s *Stage, client *kube.Client, pod *corev1.Pod) error {
		if err := write(ctx, client, pod, s.allocation(pod.Name)); err != nil {
			return err
		}
		return s.bind(ctx, client, pod, nil)
	})
}

// bindForged makes a controller create a pod that waits, and bind it to the node forged.
func bindForged(bind func(ctx context.Context, s *Stage, client *kube.Client, pod *corev1.Pod) error) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		controller, err := s.controller(ctx)
		if err != nil {
			return Got{}, err
		}
		pod, err := controller.CreatePod(ctx, s.unscheduledPod())
		if err != nil {
			return Got{}, err
		}
		if got, refused, err := refusal(bind(ctx, s, controller, pod)); refused || err != nil {
			return got, err
		}
		return s.settle(ctx, pod)
	}
}

// annotate returns a merge patch that sets the annotation, or removes it if value is nil.
func annotate(value any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{deviceinfo.Annotation: value},
	}})
	if err != nil {
		panic(err) // strings and nil can be encoded
	}
	return patch
}

func patchPod(subresources ...string) writeFunc {
	return func(ctx context.Context, client *kube.Client, pod *corev1.Pod, annotation string) error {
		return mergePatch(ctx, client, pod, annotate(annotation), subresources...)
	}
}

func mergePatch(ctx context.Context, client *kube.Client, pod *corev1.Pod, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, apitypes.MergePatchType, patch,
		metav1.PatchOptions{}, subresources...)
	return err
}

func jsonPatchPod(ctx context.Context, client *kube.Client, pod *corev1.Pod, annotation string) error {
	patch, err := json.Marshal([]map[string]any{{
		"op": "add", "path": "/metadata/annotations", "value": map[string]string{deviceinfo.Annotation: annotation},
	}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, apitypes.JSONPatchType, patch,
		metav1.PatchOptions{})
	return err
}

func putPod(ctx context.Context, client *kube.Client, pod *corev1.Pod, annotation string) error {
	pod = pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, deviceinfo.Annotation, annotation)
	_, err := client.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
	return err
}

func putStatus(ctx context.Context, client *kube.Client, pod *corev1.Pod, annotation string) error {
	pod = pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, deviceinfo.Annotation, annotation)
	_, err := client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func applyPod(ctx context.Context, client *kube.Client, pod *corev1.Pod, annotation string) error {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": pod.Name, "annotations": map[string]string{deviceinfo.Annotation: annotation},
		},
	})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, apitypes.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: "attacker", Force: ptr.To(true)})
	return err
}
