// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
)

func patchNode(ctx context.Context, client kubernetes.Interface, node, patch string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, node, apitypes.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change node %q: %w", node, err)
	}
	return nil
}

// cordon keeps new pods from the node, unless another user does already. That the journal says so
// is not enough: the process that wrote that may have ended before it was done, and others may have
// let pods come again since.
func (e *Enrolment) cordon(ctx context.Context, j *journal, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, j.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %q: %w", j.Node, err)
	}
	if node.Spec.Unschedulable {
		return nil
	}
	j.Cordoned = true
	if err := e.save(j); err != nil {
		return err
	}
	return patchNode(ctx, client, j.Node, `{"spec":{"unschedulable":true}}`)
}

// uncordon lets new pods come again, unless another user kept them away before.
func (e *Enrolment) uncordon(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if !j.Cordoned {
		return nil
	}
	if err := patchNode(ctx, client, j.Node, `{"spec":{"unschedulable":null}}`); err != nil {
		return err
	}
	j.Cordoned = false
	return e.save(j)
}

// restartKubelet restarts the kubelet and waits until it works. Its unit may be one of the files
// that were changed, which systemd does not read again by itself.
func (e *Enrolment) restartKubelet(ctx context.Context, j *journal, works func(context.Context) error) error {
	if err := e.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := e.systemctl(ctx, "restart", j.KubeletUnit); err != nil {
		return err
	}
	if err := e.await(ctx, kubeletTimeout, "node "+j.Node+" is ready", works); err != nil {
		return fmt.Errorf("the kubelet was restarted: %w; see journalctl -u %s", err, j.KubeletUnit)
	}
	return nil
}

// secondAfterHeartbeat returns the present second, as soon as it is one in which the kubelet has
// not reported yet: the API server has no finer times, and the kubelet that ends must not be taken
// for the one that starts.
func secondAfterHeartbeat(ctx context.Context, client kubernetes.Interface, name string) (time.Time, error) {
	for {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, fmt.Errorf("read node %q: %w", name, err)
		}
		now := time.Now()
		ready := readyCondition(node)
		if ready == nil || ready.LastHeartbeatTime.Time.Before(now.Truncate(time.Second)) {
			return now.Truncate(time.Second), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
		}
	}
}

// readySince returns an error unless a kubelet that was started since then reported the node as
// ready.
func readySince(ctx context.Context, client kubernetes.Interface, name string, since time.Time) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %q: %w", name, err)
	}
	ready := readyCondition(node)
	switch {
	case ready == nil || ready.LastHeartbeatTime.Time.Before(since):
		return fmt.Errorf("the kubelet has not reported node %q since its start", name)
	case ready.Status != corev1.ConditionTrue:
		return fmt.Errorf("node %q is not ready: %s", name, ready.Message)
	}
	return nil
}

// alivePods returns the pods of the node that have not ended.
func alivePods(ctx context.Context, client kubernetes.Interface, node string) (map[apitypes.UID]bool, error) {
	pods, err := podsOn(ctx, client, node)
	alive := map[apitypes.UID]bool{}
	for i := range pods {
		alive[pods[i].UID] = !hasEnded(&pods[i])
	}
	return alive, err
}

// checkNoneFailed returns an error if the kubelet has failed a pod that was alive before. A pod
// whose containers failed by themselves has no reason.
func checkNoneFailed(ctx context.Context, client kubernetes.Interface, node string, alive map[apitypes.UID]bool) error {
	pods, err := podsOn(ctx, client, node)
	if err != nil {
		return err
	}
	var failed []string
	for i := range pods {
		pod := &pods[i]
		if alive[pod.UID] && pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" {
			failed = append(failed, fmt.Sprintf("%s/%s (%s: %s)", pod.Namespace, pod.Name, pod.Status.Reason,
				pod.Status.Message))
		}
	}
	if len(failed) > 0 {
		return &final{fmt.Errorf("the kubelet has failed pods that ran: %s", strings.Join(failed, ", "))}
	}
	return nil
}

// devicePods returns the pods of the node that only kubecri serves, or would.
func (e *Enrolment) devicePods(ctx context.Context, j *journal, client kubernetes.Interface) ([]podRef, error) {
	kubelet, err := kubeletstate.Read(e.options.Host.path(e.options.CheckpointPath))
	if err != nil {
		return nil, err
	}
	granted, err := e.options.Kubecri.Granted(kubelet)
	if err != nil {
		return nil, err
	}
	pods, err := podsOn(ctx, client, j.Node)
	if err != nil {
		return nil, err
	}
	var found []podRef
	for i := range pods {
		pod := &pods[i]
		_, err := deviceinfo.PodAllocation(pod)
		holds := slices.Contains(granted, string(pod.UID))
		if !hasEnded(pod) && (err == nil || holds) {
			ref := podRef{
				uid: string(pod.UID), namespace: pod.Namespace, name: pod.Name, ends: pod.DeletionTimestamp != nil,
				holds: holds,
			}
			if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
				ref.daemonSet = owner.Name
			}
			found = append(found, ref)
		}
	}
	return found, nil
}

// drain evicts the device pods and waits until they are gone. A PodDisruptionBudget may make it
// wait.
func (e *Enrolment) drain(ctx context.Context, j *journal, client kubernetes.Interface) error {
	waits := map[string]bool{} // for a budget, by UID
	return e.await(ctx, evictionTimeout, "the device pods have left", func(ctx context.Context) error {
		left, err := e.devicePods(ctx, j, client)
		if err != nil {
			return err
		}
		if err := daemonsAmong(left); err != nil {
			return &final{err}
		}
		for _, pod := range left {
			if pod.ends {
				continue
			}
			err := client.CoreV1().Pods(pod.namespace).EvictV1(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: pod.namespace, Name: pod.name},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(pod.uid)},
			})
			switch {
			case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
			case !apierrors.IsTooManyRequests(err):
				return &final{fmt.Errorf("evict pod %s: %w", pod, err)}
			case !waits[pod.uid]:
				waits[pod.uid] = true
				e.progress("pod %s must not be evicted yet: %v", pod, err)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("device pods are left: %s", podNames(left))
		}
		return nil
	})
}

// podRef is a pod of this node.
type podRef struct {
	uid, namespace, name string
	ends                 bool // it is being deleted
	holds                bool // it holds devices that the kubelet does not know of
	daemonSet            string
}

func (p podRef) String() string { return p.namespace + "/" + p.name }

// daemonsAmong returns an error if some of the pods are of DaemonSets, whose pods come to a
// cordoned node, too. One that ends may be the last of a DaemonSet that was deleted.
func daemonsAmong(pods []podRef) error {
	for _, pod := range pods {
		if pod.daemonSet != "" && !pod.ends {
			return fmt.Errorf("pod %s has devices and is one of DaemonSet %s, which would create it again on this "+
				"node: delete the DaemonSet, or keep it from this node by its node affinity, then leave again", pod,
				pod.daemonSet)
		}
	}
	return nil
}

func podNames(pods []podRef) string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.String())
	}
	return strings.Join(all, ", ")
}
