// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// Try makes an attempt on a stage.
type Try func(ctx context.Context, s *Stage) (Got, error)

// Stage is what one attempt finds: a cluster, a namespace of its own, and a free device.
// It is used by one goroutine.
type Stage struct {
	run     *run
	cluster *cluster.Cluster
	admin   *kube.Client
	attempt *Attempt
	mode    cluster.Mode
	setting Setting

	namespace  string
	namespaced bool
	// card is the name of a free device of the node forged, device its ID. No other attempt has it.
	device string
	card   types.ResourceName
}

// node returns one of the cluster's nodes.
func (s *Stage) node(index int) *cluster.Node { return s.cluster.Nodes[index] }

// nodeIndex returns which of the cluster's nodes has a name, or -1.
func (s *Stage) nodeIndex(name string) int {
	return slices.IndexFunc(s.cluster.Nodes, func(node *cluster.Node) bool { return node.Name == name })
}

// request is what the allocations of forged pods are for.
const request types.ResourceName = "resource/group/gpugrp1/A/gpugrp0/B/gpu/0/cards"

// cardOf returns the resource of the GPU with that number, as the inventory has it.
func cardOf(number int) types.ResourceName {
	return types.ResourceName(fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/gpu-%d/cards", number/4, number/2,
		number))
}

// reservedCard is a card that no attempt has as its own.
const reservedCard = 399

// allocation returns the annotation that gives the container main of a pod the stage's device.
func (s *Stage) allocation(pod string) string {
	return s.allocationOn(s.node(forged).Name, pod, s.card)
}

// allocationOn returns the annotation that gives the container main of a pod a device of a node.
func (s *Stage) allocationOn(node, pod string, card types.ResourceName) string {
	value, err := deviceinfo.EncodePod(&types.PodInfo{
		Name: pod, NodeName: node,
		RunningContainers: map[string]types.ContainerInfo{"main": {
			DevRequests:  types.ResourceList{request: 1},
			AllocateFrom: types.ResourceLocation{request: card},
		}},
	})
	if err != nil {
		panic(err) // constant but for names that are short
	}
	return value
}

// pod returns a pod of the attempt's namespace whose container main requests a number of GPUs by
// nothing but a limit.
func (s *Stage) pod(name string, gpus int64) *corev1.Pod {
	var limits map[corev1.ResourceName]int64
	if gpus > 0 {
		limits = map[corev1.ResourceName]int64{observe.Resource: gpus}
	}
	return clustertest.IdlePod(s.namespace, name, limits)
}

// tolerant lets a pod go to nodes that keep others off.
func tolerant(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

// forgedPod returns a pod that is bound to the node forged by its own spec and has an
// annotation there that gives it the stage's device.
func (s *Stage) forgedPod() *corev1.Pod {
	pod := s.pod("forged", 1)
	pod.Spec.NodeName = s.node(forged).Name
	pod.Annotations = map[string]string{deviceinfo.Annotation: s.allocation(pod.Name)}
	return pod
}

// bind binds a pod to the node forged as a scheduler does, with an annotation unless it is empty.
func (s *Stage) bind(ctx context.Context, client *kube.Client, pod *corev1.Pod, annotations map[string]string) error {
	return client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: s.node(forged).Name},
	}, metav1.CreateOptions{})
}

// mergePatch patches a pod.
func mergePatch(ctx context.Context, client *kube.Client, pod *corev1.Pod, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, apitypes.MergePatchType, patch,
		metav1.PatchOptions{}, subresources...)
	return err
}

// refusal returns what the API server's answer means: got is set unless err is nil. An error that
// is no refusal is returned as it is.
func refusal(err error) (got Got, refused bool, other error) {
	switch {
	case err == nil:
		return Got{}, false, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsUnauthorized(err),
		apierrors.IsRequestEntityTooLargeError(err), apierrors.IsBadRequest(err):
		return Got{RefusedByAPIServer, err.Error()}, true, nil
	default:
		return Got{}, false, err
	}
}

// create creates a pod as client, and returns what becomes of it: refused, or running. It
// succeeds when a container can open the stage's device.
func (s *Stage) create(ctx context.Context, client *kube.Client, pod *corev1.Pod) (Got, error) {
	pod.Namespace = s.namespace
	created, err := client.CreatePod(ctx, pod)
	if got, refused, err := refusal(errors.Unwrap(err)); refused || err != nil {
		return got, err
	}
	return s.settle(ctx, created)
}

// settle waits until a pod runs, or until somebody says why it does not, and returns that. A pod
// that runs has succeeded if one of its containers can open the stage's device.
func (s *Stage) settle(ctx context.Context, pod *corev1.Pod) (Got, error) {
	now, got, err := s.awaitState(ctx, pod)
	if err != nil || got.Outcome != Succeeds {
		return got, err
	}
	var all []string
	for _, status := range slices.Concat(now.Status.InitContainerStatuses, now.Status.ContainerStatuses) {
		if status.State.Running == nil {
			continue
		}
		visible, err := s.visible(ctx, now, status.Name)
		if err != nil {
			return Got{}, err
		}
		if slices.Contains(visible, s.device) {
			return Got{Succeeds, "container " + status.Name + " can open " + s.device}, nil
		}
		all = append(all, visible...)
	}
	return Got{NoEffect, fmt.Sprintf("the containers can open %q", all)}, nil
}

// runs creates a pod as client. It succeeds if the pod runs.
func (s *Stage) runs(ctx context.Context, client *kube.Client, pod *corev1.Pod) (Got, error) {
	pod.Namespace = s.namespace
	created, err := client.CreatePod(ctx, pod)
	if got, refused, err := refusal(errors.Unwrap(err)); refused || err != nil {
		return got, err
	}
	_, got, err := s.awaitState(ctx, created)
	return got, err
}

// awaitState waits until a pod runs, or until somebody says why it does not. A refusal because of
// pods that are gone, or are being deleted, does not count: the node refuses their devices until it
// has seen the ends of their sandboxes, which can be after the API server forgot them.
func (s *Stage) awaitState(ctx context.Context, pod *corev1.Pod) (now *corev1.Pod, got Got, err error) {
	var failed error
	now, err = s.admin.AwaitPod(ctx, pod, "to run or be refused", func(now *corev1.Pod) bool {
		got = stateOf(now)
		var passes bool
		passes, failed = s.passes(ctx, now, got)
		return got.Outcome != "" && !passes || failed != nil
	})
	return now, got, cmp.Or(failed, err)
}

// refusedForHolders finds the pods that hold a device, in the node's refusal of another pod.
var refusedForHolders = regexp.MustCompile(`are held by \[([^\]]+)\]`)

// passes reports whether the refusal of a pod will pass by itself: every pod for which it was made
// is gone, or is being deleted. One of the refused pod's own name is an earlier one, which is gone.
func (s *Stage) passes(ctx context.Context, refused *corev1.Pod, got Got) (bool, error) {
	match := refusedForHolders.FindStringSubmatch(got.Words)
	if match == nil {
		return false, nil
	}
	for _, holder := range strings.Fields(match[1]) {
		namespace, name, _ := strings.Cut(holder, "/")
		if namespace == refused.Namespace && name == refused.Name {
			continue
		}
		pod, err := s.admin.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("pod %s, which holds a device: %w", holder, err)
		}
		if pod.DeletionTimestamp == nil {
			return false, nil
		}
	}
	return true, nil
}

// holder is a pod of another user's with a device.
type holder struct {
	pod    *corev1.Pod
	device string
	card   types.ResourceName
}

// victim runs a pod that the scheduler gives a device of the node scheduled.
func (s *Stage) victim(ctx context.Context) (holder, error) { return s.victimThat(ctx, nil) }

// victimThat is victim for a pod with annotations.
func (s *Stage) victimThat(ctx context.Context, annotations map[string]string) (holder, error) {
	if err := s.makeNamespace(ctx); err != nil {
		return holder{}, err
	}
	pod := clustertest.On(s.node(scheduled).Name, s.pod("victim", 1))
	pod.Annotations = annotations
	pod, err := s.admin.RunPod(ctx, pod)
	if err != nil {
		return holder{}, err
	}
	seen, err := s.run.observer.Observe(ctx, pod, "main")
	if err != nil {
		return holder{}, err
	}
	if len(seen.Chosen) != 1 || !slices.Equal(seen.Chosen, seen.Visible) {
		return holder{}, fmt.Errorf("the victim was allocated %q and has %q", seen.Chosen, seen.Visible)
	}
	return holder{pod, seen.Chosen[0], types.ResourceName(seen.Paths[0])}, nil
}

// stateOf returns what a pod's status says; nothing while that is undecided.
func stateOf(pod *corev1.Pod) Got {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		if waiting != nil && waiting.Reason == "CreateContainerError" && !passing(waiting.Message) {
			return Got{RefusedByNode, waiting.Message}
		}
	}
	for _, status := range pod.Status.InitContainerStatuses {
		if status.State.Running != nil {
			return Got{Succeeds, "init container " + status.Name + " runs"}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse &&
			!strings.Contains(condition.Message, unsyncedYet) {
			return Got{RefusedByScheduler, condition.Message}
		}
	}
	switch {
	case kube.Ready(pod):
		return Got{Succeeds, "the pod runs"}
	case pod.Status.Phase == corev1.PodFailed:
		return Got{RefusedByNode, pod.Status.Message}
	default:
		return Got{}
	}
}

// unsyncedYet stands in refusals of the scheduler that the next try does away with.
const unsyncedYet = "does not know yet"

// passing reports whether a refusal of the node is one that the next try does away with.
func passing(refusal string) bool {
	return slices.ContainsFunc([]string{
		"is not known", "are not known", "unresolvable CDI devices kubedevice.io",
		"have not answered yet", "are still being inspected", "has not decided in the time",
		"list the runtime's sandboxes: rpc error: code = DeadlineExceeded", // while the machine is busy
	}, func(part string) bool { return strings.Contains(refusal, part) })
}

// visible returns the devices that a container can open, by ID.
func (s *Stage) visible(ctx context.Context, pod *corev1.Pod, container string) ([]string, error) {
	devices := s.run.observer.Devices(pod.Spec.NodeName)
	if pod.Spec.NodeName == s.node(forged).Name {
		// There are too many to try them all, and only one that the attempt may have.
		devices = slices.Collect(func(yield func(observe.Device) bool) {
			for _, device := range devices {
				if device.ID == s.device && !yield(device) {
					return
				}
			}
		})
	}
	printed, err := s.admin.Exec(ctx, pod, container, observe.Probe(devices)...)
	if err != nil {
		return nil, err
	}
	var seen observe.Observation
	if err := seen.Read(printed); err != nil {
		return nil, err
	}
	return seen.Visible, nil
}

// asUser runs a shell command on a node as a user without rights there, and returns what it says.
func (s *Stage) asUser(ctx context.Context, node int, command string) (string, error) {
	var said bytes.Buffer
	err := s.node(node).Sandbox().Run(ctx, sandbox.Command{
		Path: "/usr/bin/setpriv",
		Args: []string{"--reuid=65534", "--regid=65534", "--clear-groups", "/bin/sh", "-c", command},
		Env:  s.cluster.Environment(), Stdout: &said, Stderr: &said,
	})
	return said.String(), err
}

// clean removes the attempt's pods. Each stays in the API until its containers have ended, so that
// the scheduler gives its devices to no other attempt before.
func (s *Stage) clean(ctx context.Context) error {
	if !s.namespaced {
		return nil
	}
	return s.admin.CoreV1().Pods(s.namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}, metav1.ListOptions{})
}
