// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// spares are devices beyond those of the containers that a scenario creates: for a pod of which a
// device fails, the device that has failed, and the one in its place.
const spares = 2*perPod + 1

// failing returns the scenario in which devices fail, and kubecri is killed at a point while their
// containers get others. So that there is another one at any time, half as many containers
// are created meanwhile as in other scenarios: pods that leave and those that follow have devices
// at the same time.
func (r *run) failing(point failpoint.Point) scenario {
	return scenario{
		name: string(point), title: "a device fails, kubecri is killed: " + string(point),
		creations: max(perPod, r.options.Creations/2),
		disturb: func(ctx context.Context, result *Result, leave func(*workload) error) (kills int, err error) {
			supervisor := r.node.Kubecri.Supervise()
			defer func() { err = errors.Join(err, supervisor.Stop()) }()
			for kills < r.options.Kills {
				w := &workload{client: r.cluster.Client, namespace: r.namespace,
					name: fmt.Sprintf("%s-of-%d", point, kills), containers: perPod,
					annotations: map[string]string{
						deviceinfo.OnDeviceFailureAnnotation:          "Replace",
						deviceinfo.DeviceFailureGracePeriodAnnotation: "0s",
					}}
				if err := r.failOnce(ctx, point, supervisor, w, result); err != nil {
					return kills, fmt.Errorf("device failure %d: %w", kills, err)
				}
				if err := leave(w); err != nil {
					return kills, err
				}
				kills++
			}
			return kills, nil
		},
	}
}

// failOnce makes the device of a new pod's first container fail, waits until kubecri has killed
// itself at a point, and then until the container has another device. The pod's other container
// must not notice.
func (r *run) failOnce(ctx context.Context, point failpoint.Point, supervisor *cluster.Supervisor,
	w *workload, result *Result) error {
	if err := w.create(ctx, 1, 0); err != nil {
		return err
	}
	ready, lost, err := w.awaitReady(ctx, recoveryTimeout)
	if err := errors.Join(append(errorsOf(lost), err)...); err != nil {
		return err
	}
	before := &ready[0]
	choice, err := r.observer.Choice(before, before.Status.ContainerStatuses[0].Name)
	if err != nil {
		return err
	}
	r.auditor.MayEnd(w.uids()...)
	starts := supervisor.Restarts() + 1
	if err := r.arm(point); err != nil {
		return err
	}
	if err := r.setHealth(choice.Chosen...); err != nil {
		return err
	}
	if err := r.awaitKilled(ctx, point, supervisor, starts); err != nil {
		return err
	}
	granted, err := r.awaitReplaced(ctx, before)
	if err != nil {
		return fmt.Errorf("%w: on record is %+v; it is %s", err, granted, r.cluster.Client.Describe(ctx, before))
	}
	ready, lost, err = r.awaitSettled(ctx, w, result)
	if err := errors.Join(append(errorsOf(lost), err)...); err != nil {
		return err
	}
	now := &ready[0]
	running, err := r.inspect(result)
	if err != nil {
		return err
	}
	wrong, err := r.wrong(now, granted, running)
	if err != nil {
		return err
	}
	instead, err := r.observer.Choice(now, now.Status.ContainerStatuses[0].Name)
	if err != nil {
		return err
	}
	if slices.Equal(instead.Chosen, choice.Chosen) {
		wrong = append(wrong, fmt.Sprintf("%s still has %q, which has failed", instead, choice.Chosen))
	}
	other, still := before.Status.ContainerStatuses[1], now.Status.ContainerStatuses[1]
	if other.ContainerID != still.ContainerID {
		wrong = append(wrong, fmt.Sprintf("pod %s: container %s was %s and is %s, and its device had not failed",
			now.Name, still.Name, other.ContainerID, still.ContainerID))
	}
	return errors.Join(append(errorsOf(wrong), r.setHealth())...)
}

// awaitReplaced waits until the pod's first container was started again, its previous devices are
// released, and it has what the scheduler allocated last: the node may refuse an answer, take it
// later, and get a second one.
func (r *run) awaitReplaced(ctx context.Context, before *corev1.Pod) (granted grants.Allocation, err error) {
	what := "pod " + before.Name + " has another device, and no longer holds the previous one"
	pods, old := r.cluster.Client.CoreV1().Pods(before.Namespace), before.Status.ContainerStatuses[0].ContainerID
	waited := r.await(ctx, what, func() bool {
		var now *corev1.Pod
		now, err = pods.Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil || !kube.Ready(now) || now.UID != before.UID ||
			now.Status.ContainerStatuses[0].ContainerID == old {
			return false
		}
		var recorded map[string]grants.Allocation
		recorded, err = r.checkpointed(ctx)
		granted = recorded[string(now.UID)]
		if err != nil || granted.Generation == 0 || granted.Requests() || len(granted.Leaving) > 0 {
			return false
		}
		var choice *observe.Observation
		choice, err = r.observer.Choice(now, now.Status.ContainerStatuses[0].Name)
		return err == nil && slices.Equal(choice.Paths, grantedTo(granted, choice.Container))
	})
	if waited != nil {
		return granted, errors.Join(waited, err)
	}
	return granted, nil
}

func errorsOf(texts []string) (errs []error) {
	for _, text := range texts {
		errs = append(errs, errors.New(text))
	}
	return errs
}
