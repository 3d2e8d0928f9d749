// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// SignPod returns the key of the pod's request, and its tolerations as upstream signs them: pods of
// equal signature get the same answers, which upstream may reuse. Upstream signs the sum of a pod's
// requests, but which container gets which device, and when it runs, matters here. All pods that
// request no device have the same signature; one whose annotation cannot be read has none.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	request, err := p.nodes.Requests.Read(pod)
	switch {
	case err != nil:
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	case request == nil:
		return nil, nil
	}
	return []fwk.SignFragment{
		{Key: Name, Value: request.Key().String()},
		{Key: fwk.TolerationsSignerName, Value: fwk.TolerationsSigner(pod)},
	}, nil
}
