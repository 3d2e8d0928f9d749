// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// signature is what the plugin's answers depend on beyond what upstream signs: upstream has the sum of the requests over
// all containers, but which container gets which device, and when it runs, matters here.
type signature struct {
	Annotation string
	Containers []grouptree.Container
	Requests   []v1.ResourceList // of init containers, then of containers
}

// SignPod tells upstream which pods are alike for this plugin, so that it may reuse an answer. Pods that ask for no
// device are all alike.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	if annotation == "" && !nodestate.RequestsExtended(pod) {
		return nil, nil
	}
	signed := signature{Annotation: annotation, Containers: nodestate.Containers(pod)}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			signed.Requests = append(signed.Requests, containers[i].Resources.Requests)
		}
	}
	return []fwk.SignFragment{{Key: Name, Value: signed}}, nil
}
