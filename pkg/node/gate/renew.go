// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
)

// CreationFailed is the criproxy.Failed of CreateContainerMethod. What a runtime says of a CDI device that it does not find, or of
// which a part is not there, is the words of the CDI library, which name CDI. Such a device is described by a file that its plugin
// made, maybe while it answered, and that somebody removed.
func (g *Gate) CreationFailed(ctx context.Context, raw []byte, err error) {
	if !strings.Contains(status.Convert(err).Message(), "CDI") {
		return
	}
	request, invalid := inject.Decode(raw)
	if invalid != nil {
		return // cannot be: it was let pass
	}
	g.renew(ctx, subjectOf(request.GetSandboxConfig()), request.GetConfig().GetMetadata().GetName(), err)
}

// renewIfGone is renew for an error that says that something is not there which an answer names.
func (g *Gate) renewIfGone(ctx context.Context, s subject, container string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		g.renew(ctx, s, container, err)
	}
}

// renew makes that device plugins are asked again what the container needs when the kubelet tries again. What they said names
// something that is not there: it would never do.
func (g *Gate) renew(ctx context.Context, s subject, container string, reason error) {
	logger := klog.FromContext(ctx)
	forgot, err := g.Responses.Drop(s.uid, container)
	switch {
	case err != nil:
		logger.Error(err, "What device plugins answered for a container is still used, although it is of no use", "pod", klog.KRef(s.namespace, s.name), "container", container)
	case forgot:
		logger.Info("What device plugins answered for a container is of no use; they are asked again", "pod", klog.KRef(s.namespace, s.name), "container", container, "reason", reason.Error())
	}
}
