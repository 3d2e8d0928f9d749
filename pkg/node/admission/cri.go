// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/images"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// The methods of the CRI that CRI edits or limits, by full name.
const (
	RunPodSandboxMethod   = "/runtime.v1.RuntimeService/RunPodSandbox"
	CreateContainerMethod = "/runtime.v1.RuntimeService/CreateContainer"
	RestorePodMethod      = "/runtime.v1.RuntimeService/RestorePod"
)

// CRI is the frontend for calls of the CRI: it reads them, and appends to them.
type CRI struct{ *Admission }

// CreateContainer edits requests of CreateContainerMethod, see criproxy.Editor.
func (c CRI) CreateContainer(ctx context.Context, raw []byte) (suffix []byte, err error) {
	request, err := inject.Decode(raw)
	if err != nil {
		c.Metrics.ObserveContainer(Refused)
		return nil, invalidArgument(err)
	}
	container := containerOf(request)
	pod := newPodRef(container.Pod)
	if err = c.remembered(pod); err == nil { // before the image is read
		err = c.checkContents(ctx, request)
	}
	if err != nil {
		c.Metrics.ObserveContainer(Refused)
		return nil, c.refuse(ctx, pod, err)
	}
	failpoint.Reach(failpoint.Decoded)
	addition, err := c.Admit(ctx, container)
	if err != nil || addition == nil {
		return nil, err
	}
	return inject.Suffix(addition)
}

// A request that is longer is refused before it is decoded. Everything in it is as large here as
// NRI has it, but for ports and the like.
const (
	MaxSandboxRequest   = nribound.MaxContents + 64<<10
	MaxContainerRequest = 2*nribound.MaxContents + 128<<10 // it has the sandbox's configuration, too
)

// SandboxTooLong refuses requests of RunPodSandboxMethod, see criproxy.Refuser.
func (c CRI) SandboxTooLong(ctx context.Context, request io.Reader, bytes int) error {
	pod, _ := metadataOf(request, sandboxInRun, metadataPath{})
	return c.Refuse(ctx, pod, fmt.Errorf("pod %s/%s: its request to the container runtime has %d bytes, and at most "+
		"%d are allowed: shorten its labels and annotations", pod.Namespace, pod.Name, bytes, MaxSandboxRequest))
}

// ContainerTooLong refuses requests of CreateContainerMethod, see criproxy.Refuser.
func (c CRI) ContainerTooLong(ctx context.Context, request io.Reader, bytes int) error {
	pod, container := metadataOf(request, sandboxInCreate, containerInCreate)
	return c.Refuse(ctx, pod, fmt.Errorf("container %q of pod %s/%s: its request to the container runtime has %d "+
		"bytes, and at most %d are allowed: %s", container, pod.Namespace, pod.Name, bytes, MaxContainerRequest,
		nribound.Advice))
}

// checkContents returns why a container, or its sandbox, is too large. The bounds are those of NRI,
// as the runtime lists containers to NRI plugins in both modes.
func (c CRI) checkContents(ctx context.Context, request *runtimeapi.CreateContainerRequest) error {
	sandbox := request.GetSandboxConfig()
	pod := nribound.Pod{Namespace: sandbox.GetMetadata().GetNamespace(), Name: sandbox.GetMetadata().GetName()}
	if err := nribound.CheckSandbox(pod, nribound.CRISandboxContents(sandbox)); err != nil {
		return failedPrecondition(err)
	}
	config := request.GetConfig()
	contents := nribound.CRIContainerContents(config)
	image, err := c.Images.Image(ctx, config.GetImage())
	switch {
	case err == nil:
		contents = contents.Plus(image.Contents(config))
	case images.IsUndescribed(err):
		// If the runtime does not have the image, it says so to the kubelet.
	default:
		return unavailableWithoutEvent(fmt.Errorf("container %q of pod %s: what its image sets is not known: %w",
			config.GetMetadata().GetName(), pod, err))
	}
	if err := nribound.CheckContainer(pod, config.GetMetadata().GetName(), contents); err != nil {
		return failedPrecondition(err)
	}
	return nil
}

// errRestore is why a device pod is not restored. Its processes go on where they were, with the
// environment that names the devices of before, which a restore must not change; and what was in
// the memory of those devices is in no checkpoint.
var errRestore = errors.New("a pod that requests devices cannot be restored from a checkpoint: " +
	"it has neither the state of its devices nor a place for other devices; create it again")

// RestorePod edits requests of RestorePodMethod, see criproxy.Editor: it refuses device pods, and
// where the firewall guards devices, all others, too: a restored process keeps the environment and
// the devices of its checkpoint.
func (c CRI) RestorePod(ctx context.Context, raw []byte) ([]byte, error) {
	pod, err := parseRestore(raw)
	if err != nil {
		return nil, invalidArgument(err)
	}
	spec, devicePod, err := c.isDevicePod(ctx, pod)
	if err == nil && devicePod {
		err = failedPrecondition(errRestore)
	}
	if err == nil {
		err = c.guardRestore(ctx, pod, spec)
	}
	if err != nil {
		return nil, c.refuse(ctx, pod, err)
	}
	return nil, nil
}

// CreationFailed receives failed calls of CreateContainerMethod, see criproxy.Editor.
func (c CRI) CreationFailed(ctx context.Context, raw []byte, err error) {
	if !concernsCDI(err) {
		return // before the request is decoded once more
	}
	request, invalid := inject.Decode(raw)
	if invalid != nil {
		return // cannot be: CreateContainer let it pass
	}
	c.Failed(ctx, containerOf(request), err)
}

func containerOf(request *runtimeapi.CreateContainerRequest) Container {
	return Container{
		Pod: sandboxPod(request.GetSandboxConfig()), Config: request.GetConfig(), SandboxID: request.GetPodSandboxId(),
	}
}

// parseRestore reads the pod of a RestorePodRequest.
func parseRestore(raw []byte) (podRef, error) {
	decoded := &runtimeapi.RestorePodRequest{}
	if err := proto.Unmarshal(raw, decoded); err != nil {
		return podRef{}, fmt.Errorf("read RestorePodRequest: %w", err)
	}
	return newPodRef(sandboxPod(decoded.GetConfig())), nil
}

func sandboxPod(sandbox *runtimeapi.PodSandboxConfig) Pod {
	return Pod{
		UID: sandbox.GetMetadata().GetUid(), Namespace: sandbox.GetMetadata().GetNamespace(),
		Name: sandbox.GetMetadata().GetName(), Annotations: sandbox.GetAnnotations(),
	}
}
