// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"io"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// proxy passes the kubelet's calls on to the runtime, except containers, which admission may change
// or refuse, and pods that are too large. lists is the runtime's connection for lists.
func (n *node) proxy(lists *grpc.ClientConn) *criproxy.Proxy {
	frontend := admission.CRI{Admission: n.admission()}
	return criproxy.New(n.upstream, criproxy.Options{
		Editors: map[string]criproxy.Editor{
			admission.CreateContainerMethod: creationCalls{frontend},
			admission.RestorePodMethod:      restoreCalls{frontend},
		},
		Limits: map[string]criproxy.Limit{
			admission.RunPodSandboxMethod:   {Bytes: admission.MaxSandboxRequest, Refuser: sandboxCalls{frontend}},
			admission.CreateContainerMethod: {Bytes: admission.MaxContainerRequest, Refuser: creationCalls{frontend}},
		},
		Unary:   criMethods(),
		Lists:   &criproxy.Lists{Methods: criLists(), Upstream: lists},
		Metrics: n.metrics,
	})
}

// creationCalls is what the frontend does with CreateContainerMethod.
type creationCalls struct{ frontend admission.CRI }

// Edit implements criproxy.Editor.
func (c creationCalls) Edit(ctx context.Context, request []byte) ([]byte, error) {
	return c.frontend.CreateContainer(ctx, request)
}

// Failed implements criproxy.Editor.
func (c creationCalls) Failed(ctx context.Context, request []byte, err error) {
	c.frontend.CreationFailed(ctx, request, err)
}

// Refuse implements criproxy.Refuser.
func (c creationCalls) Refuse(ctx context.Context, request io.Reader, bytes int) error {
	return c.frontend.ContainerTooLong(ctx, request, bytes)
}

// restoreCalls is what the frontend does with RestorePodMethod.
type restoreCalls struct{ frontend admission.CRI }

// Edit implements criproxy.Editor.
func (r restoreCalls) Edit(ctx context.Context, request []byte) ([]byte, error) {
	return r.frontend.RestorePod(ctx, request)
}

// Failed implements criproxy.Editor. A restore changes nothing that would have to be undone.
func (restoreCalls) Failed(context.Context, []byte, error) {}

// sandboxCalls is what the frontend does with RunPodSandboxMethod.
type sandboxCalls struct{ frontend admission.CRI }

// Refuse implements criproxy.Refuser.
func (s sandboxCalls) Refuse(ctx context.Context, request io.Reader, bytes int) error {
	return s.frontend.SandboxTooLong(ctx, request, bytes)
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
