// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// The outcomes, as labels of a metric.
const (
	written  = "written"
	noDevice = "no_device"
	conflict = "conflict"
	failed   = "error"
)

// reasonNotReplaced is the reason of the event on a pod without a replacement.
const reasonNotReplaced = "DeviceNotReplaced"

// answer allocates other devices to one container of the pod, unless the pod has an answer already
// that the node can use. It reports whether to try again at once.
func (e *Engine) answer(
	ctx context.Context, node *v1.Node, pod *v1.Pod, want deviceinfo.Replacement,
) (again bool) {
	now, err := e.generationOf(pod)
	switch {
	case err != nil:
		e.reportReason(pod, err)
		return false
	case now > want.Generation || e.answered(pod.UID, now):
		return false // the node or the informer has not seen the answer yet
	}
	decision, err := e.choose(ctx, node, pod, want)
	if err != nil {
		metrics.DeviceReplacements.WithLabelValues(noDevice).Inc()
		e.reportReason(pod, err)
		return false
	}
	generation := max(now, want.Generation) + 1
	e.reserve(node.Name, pod.UID, generation, Chosen, 0)
	outcome := e.write(ctx, pod, decision, generation)
	metrics.DeviceReplacements.WithLabelValues(outcome).Inc()
	switch outcome {
	case written:
		delete(e.explained[node.Name], pod.UID)
		e.reserve(node.Name, pod.UID, generation, Written, keepReserved)
	case conflict, noDevice:
		e.drop(node.Name, pod.UID)
	case failed:
		e.reserve(node.Name, pod.UID, generation, Unresolved, lateEffect)
	}
	return outcome == conflict
}

// generationOf returns the generation of the pod's allocation, which must be sealed.
func (e *Engine) generationOf(pod *v1.Pod) (int64, error) {
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		return 0, err
	}
	return e.Keys.Verifier().Generation(pod.Annotations[seal.Annotation], seal.Decision{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName,
		Allocation: seal.DigestOf(allocation),
	})
}

// reportReason writes an event on the pod that says why it gets no other device, once for each
// reason.
func (e *Engine) reportReason(pod *v1.Pod, err error) {
	node := pod.Spec.NodeName
	if e.explained[node] == nil {
		e.explained[node] = map[types.UID]string{}
	}
	if text := err.Error(); e.explained[node][pod.UID] != text {
		e.explained[node][pod.UID] = text
		e.event(pod, reasonNotReplaced, "no other device of node %q can replace the unhealthy one: %s",
			pod.Spec.NodeName, text)
	}
}

// choose chooses and reserves devices for the first container for which the node has others. It
// handles one container at a time: the next one may then get the devices that this one frees.
func (e *Engine) choose(
	ctx context.Context, node *v1.Node, pod *v1.Pod, want deviceinfo.Replacement,
) (*sdk.PodInfo, error) {
	done := e.Nodes.Placing()
	defer done()
	pods := func() ([]*v1.Pod, error) { return e.Pods.PodsOn(node.Name) }
	err := errors.New("the node names no container of the pod")
	for _, container := range want.Containers {
		var vacancy *nodestate.Vacancy
		if vacancy, err = e.Nodes.Vacancy(ctx, node, pods, pod, container); err != nil {
			continue
		}
		has, known := vacancy.Held.RunningContainers[container]
		if !known || len(has.AllocateFrom) == 0 {
			err = fmt.Errorf("container %q has no devices", container)
			continue
		}
		var chosen sdk.ContainerInfo
		if chosen, err = e.place(ctx, vacancy, pod, container, want.Refused); err != nil {
			continue
		}
		decision := *vacancy.Held
		decision.RunningContainers = maps.Clone(decision.RunningContainers)
		decision.RunningContainers[container] = replaceDevices(has, chosen)
		if err = deviceinfo.CheckContainers(&decision); err != nil {
			continue
		}
		e.Nodes.ReserveMore(node.Name, pod, &sdk.PodInfo{
			Name: pod.Name, NodeName: node.Name,
			RunningContainers: map[string]sdk.ContainerInfo{container: addedDevices(has, chosen)},
		})
		return &decision, nil
	}
	return nil, err
}

// replaceDevices returns the container with the chosen devices.
func replaceDevices(container, chosen sdk.ContainerInfo) sdk.ContainerInfo {
	container.DevRequests, container.AllocateFrom = chosen.DevRequests, chosen.AllocateFrom
	return container
}

// addedDevices returns the chosen devices that the container does not have.
func addedDevices(has, chosen sdk.ContainerInfo) sdk.ContainerInfo {
	had := map[sdk.ResourceName]bool{}
	for _, device := range has.AllocateFrom {
		had[device] = true
	}
	more := sdk.ContainerInfo{DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{}}
	for _, request := range slices.Sorted(maps.Keys(chosen.AllocateFrom)) {
		if device := chosen.AllocateFrom[request]; !had[device] {
			more.DevRequests[request], more.AllocateFrom[request] = chosen.DevRequests[request], device
		}
	}
	return more
}

// write writes the pod's next generation. It fails if the pod has changed since the decision.
func (e *Engine) write(ctx context.Context, pod *v1.Pod, decision *sdk.PodInfo, generation int64) (outcome string) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KObj(pod), logkey.Node,
		klog.KRef("", pod.Spec.NodeName), logkey.Generation, generation)
	body, err := e.patchOf(pod, decision, generation)
	if err != nil {
		e.reportReason(pod, err)
		return noDevice
	}
	// Schedulers may write the status subresource in any case, and it accepts annotations.
	for tries := 0; ; tries++ {
		var patched *v1.Pod
		patched, err = e.patch(ctx, pod, body)
		switch {
		case err == nil:
			logger.Info("Allocated other devices to a container", logkey.ResourceVersion, patched.ResourceVersion)
			return written
		case unchanged(err) && tries == 0:
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return conflict
			}
			logger.Error(err, "Cannot replace the devices of a pod")
			e.reportReason(pod, fmt.Errorf("the scheduler may not write the pod's allocation: %w; check for a policy, "+
				"a webhook or RBAC that forbids it to patch pods/status", err))
			return noDevice
		case unchanged(err): // after a change by an earlier try or by another client
			return e.resolve(ctx, pod, generation)
		case tries == 2 || ctx.Err() != nil:
			logger.Error(err, "Cannot determine whether the devices of a pod were replaced")
			return failed
		}
	}
}

// patchOf returns the patch that writes the decision to the pod.
func (e *Engine) patchOf(pod *v1.Pod, decision *sdk.PodInfo, generation int64) ([]byte, error) {
	annotation, err := deviceinfo.EncodePod(decision)
	if err != nil {
		return nil, err
	}
	if err := deviceinfo.CheckSize(pod.Annotations, annotation, len(seal.Annotation)+seal.MaxBytes); err != nil {
		return nil, err
	}
	sealed, err := e.Keys.Signer().Seal(seal.Decision{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName,
		Allocation: seal.DigestOf(decision), Time: time.Now(), Generation: generation,
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
		"annotations": map[string]string{deviceinfo.Annotation: annotation, seal.Annotation: sealed},
	}})
}

func (e *Engine) patch(ctx context.Context, pod *v1.Pod, body []byte) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return e.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: "kube-scheduler"}, "status")
}

// resolve reads the pod to find the outcome of a patch without an answer.
func (e *Engine) resolve(ctx context.Context, pod *v1.Pod, generation int64) (outcome string) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	current, err := e.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
		return conflict
	}
	if err != nil {
		return failed
	}
	if now, err := e.generationOf(current); err == nil && now >= generation {
		return written
	}
	return conflict
}
