// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// proxy passes the kubelet's calls on to the runtime, except containers, which admission may change
// or refuse, and pods that are too large. lists is the runtime's connection for lists.
func (n *node) proxy(lists *grpc.ClientConn) *criproxy.Proxy {
	front := admission.CRI{Admission: n.admission()}
	return criproxy.New(n.upstream, criproxy.Options{
		Edits: map[string]criproxy.Edit{
			admission.CreateContainerMethod: front.CreateContainer, admission.RestorePodMethod: front.RestorePod,
		},
		Limits: map[string]criproxy.Limit{
			admission.RunPodSandboxMethod:   {Bytes: admission.MaxSandboxRequest, Refuse: front.SandboxTooLong},
			admission.CreateContainerMethod: {Bytes: admission.MaxContainerRequest, Refuse: front.ContainerTooLong},
		},
		Failed:  map[string]criproxy.Failed{admission.CreateContainerMethod: front.CreationFailed},
		Unary:   criMethods(),
		Lists:   &criproxy.Lists{Methods: criLists(), Upstream: lists},
		Metrics: n.measures,
	})
}

// criLists returns the methods of the CRI that list what all pods of the node have, by full name.
func criLists() map[string]bool {
	return map[string]bool{
		runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:        true,
		runtimeapi.RuntimeService_ListContainers_FullMethodName:        true,
		runtimeapi.RuntimeService_ListContainerStats_FullMethodName:    true,
		runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName:   true,
		runtimeapi.RuntimeService_ListPodSandboxMetrics_FullMethodName: true,
		runtimeapi.ImageService_ListImages_FullMethodName:              true,
	}
}
