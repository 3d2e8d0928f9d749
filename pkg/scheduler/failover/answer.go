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

// The outcomes, which metrics count.
const (
	written  = "written"
	noDevice = "no_device"
	conflict = "conflict"
	failed   = "error"
)

// reasonNotReplaced is the reason of the event on a pod for which nothing was found.
const reasonNotReplaced = "DeviceNotReplaced"

// answer gives one container of the pod other devices, if the pod has no answer yet that the node
// can use. It reports whether to try again at once.
func (e *Engine) answer(
	ctx context.Context, node *v1.Node, pod *v1.Pod, want deviceinfo.Replacement,
) (again bool) {
	now, err := e.generationOf(pod)
	switch {
	case err != nil:
		e.explain(pod, err)
		return false
	case now > want.Generation || e.answered(pod.UID, now):
		return false // the node has not seen the answer yet, or the informer has not
	}
	decision, err := e.choose(ctx, node, pod, want)
	if err != nil {
		metrics.DeviceReplacements.WithLabelValues(noDevice).Inc()
		e.explain(pod, err)
		return false
	}
	generation := max(now, want.Generation) + 1
	outcome := e.write(ctx, pod, decision, generation)
	metrics.DeviceReplacements.WithLabelValues(outcome).Inc()
	switch outcome {
	case written:
		delete(e.said[node.Name], pod.UID)
		e.keep(node.Name, pod.UID, generation, keepPause, true)
	case conflict, noDevice:
		e.drop(node.Name, pod.UID)
	case failed:
		e.keep(node.Name, pod.UID, generation, latePatch, false)
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

// explain says in an event on the pod why it is given nothing, once for each reason.
func (e *Engine) explain(pod *v1.Pod, err error) {
	node := pod.Spec.NodeName
	if e.said[node] == nil {
		e.said[node] = map[types.UID]string{}
	}
	if text := err.Error(); e.said[node][pod.UID] != text {
		e.said[node][pod.UID] = text
		e.tell(pod, reasonNotReplaced, "no other device of node %q was found for the one that is unhealthy: %s",
			pod.Spec.NodeName, text)
	}
}

// choose chooses devices for the first container that can be given others, and reserves them. One
// container at a time: the next one may then have what this one leaves.
func (e *Engine) choose(
	ctx context.Context, node *v1.Node, pod *v1.Pod, want deviceinfo.Replacement,
) (*sdk.PodInfo, error) {
	done := e.Nodes.Placing()
	defer done()
	pods := func() ([]*v1.Pod, error) { return e.PodsOn(node.Name) }
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
		decision.RunningContainers[container] = withDevices(has, chosen)
		if err = deviceinfo.CheckContainers(&decision); err != nil {
			continue
		}
		e.Nodes.ReserveMore(node.Name, pod, &sdk.PodInfo{
			Name: pod.Name, NodeName: node.Name,
			RunningContainers: map[string]sdk.ContainerInfo{container: added(has, chosen)},
		})
		return &decision, nil
	}
	return nil, err
}

// withDevices returns the container as it was, with the devices that were chosen.
func withDevices(container, chosen sdk.ContainerInfo) sdk.ContainerInfo {
	container.DevRequests, container.AllocateFrom = chosen.DevRequests, chosen.AllocateFrom
	return container
}

// added returns what was chosen and the container does not have.
func added(has, chosen sdk.ContainerInfo) sdk.ContainerInfo {
	had := map[sdk.ResourceName]bool{}
	for _, from := range has.AllocateFrom {
		had[from] = true
	}
	more := sdk.ContainerInfo{DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{}}
	for _, request := range slices.Sorted(maps.Keys(chosen.AllocateFrom)) {
		if from := chosen.AllocateFrom[request]; !had[from] {
			more.DevRequests[request], more.AllocateFrom[request] = chosen.DevRequests[request], from
		}
	}
	return more
}

// write writes the pod's next generation. The pod must still be as the decision found it.
func (e *Engine) write(ctx context.Context, pod *v1.Pod, decision *sdk.PodInfo, generation int64) (outcome string) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KObj(pod), logkey.Node,
		klog.KRef("", pod.Spec.NodeName), logkey.Generation, generation)
	body, err := e.patchOf(pod, decision, generation)
	if err != nil {
		e.explain(pod, err)
		return noDevice
	}
	// The subresource, which schedulers may write in any case, takes annotations, too.
	for tries := 0; ; tries++ {
		var patched *v1.Pod
		patched, err = e.patch(ctx, pod, body)
		switch {
		case err == nil:
			logger.Info("A container of a pod is given other devices", logkey.ResourceVersion, patched.ResourceVersion)
			return written
		case refused(err) && tries == 0:
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return conflict
			}
			logger.Error(err, "The devices of a pod cannot be replaced")
			e.explain(pod, fmt.Errorf("the scheduler may not write the pod's allocation: %w; look for a policy, a "+
				"webhook or RBAC that forbids it to patch pods/status", err))
			return noDevice
		case refused(err): // by what an earlier try has done, or by somebody else
			return e.resolve(ctx, pod, generation)
		case tries == 2 || ctx.Err() != nil:
			logger.Error(err, "It is not known whether the devices of a pod were replaced")
			return failed
		}
	}
}

// patchOf returns the patch that makes the decision the pod's.
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

// resolve finds out what became of a patch of which an answer was lost.
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
