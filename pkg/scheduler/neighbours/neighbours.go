// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package neighbours counts the pods with devices on the node of the scheduler's own pod. A process
// that breaks out of such a pod has the credentials of the node, and with them the key for seals
// and the scheduler's token.
package neighbours

import (
	"context"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// checkPeriod is the time between two counts.
const checkPeriod = 30 * time.Second

// Watch counts until ctx ends, and sets metrics.DevicePodsOnOwnNode. It logs the first pod when
// there are any. podsOn returns the pods on a node that have not ended.
func Watch(ctx context.Context, pods corelisters.PodLister, podsOn func(node string) ([]*v1.Pod, error)) {
	host, err := os.Hostname()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot determine which pods share a node with the scheduler")
		return
	}
	namespace, name := schedulerapi.OwnPod(strings.ToLower(host))
	logged := false
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		own, err := pods.Pods(namespace).Get(name)
		if err != nil || own.Spec.NodeName == "" {
			return // it runs in no pod, or is not known yet
		}
		present, err := podsOn(own.Spec.NodeName)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot count the pods that share a node with the scheduler")
			return
		}
		found := WithDevices(present)
		metrics.DevicePodsOnOwnNode.Set(float64(len(found)))
		if len(found) > 0 && !logged {
			klog.FromContext(ctx).Info("The scheduler shares its node with pods that have devices: a process that "+
				"breaks out of one of them has the scheduler's key and token", logkey.Node, own.Spec.NodeName,
				logkey.Pod, klog.KObj(found[0]), logkey.NextStep, "run the scheduler on control planes, or on nodes "+
					"without such pods: "+documents.URL+"deploy/second-scheduler.md")
		}
		logged = len(found) > 0
	}, checkPeriod)
}

// WithDevices returns those of the pods that have devices by their allocation.
func WithDevices(pods []*v1.Pod) (found []*v1.Pod) {
	for _, pod := range pods {
		if deviceinfo.MayAllocate(pod.Annotations[deviceinfo.Annotation]) {
			found = append(found, pod)
		}
	}
	return found
}
