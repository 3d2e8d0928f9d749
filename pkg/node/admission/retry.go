// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"

	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// Failed is called when the runtime could not create a container that was admitted. One that does
// not find a CDI device, or a part of one, says so in the words of the CDI library, which name CDI.
// A file that its plugin made, maybe while it answered, describes such a device, and somebody may
// have removed it.
func (a *Admission) Failed(ctx context.Context, c Container, err error) {
	if concernsCDI(err) {
		a.dropResponses(ctx, newRequest(c), err)
	}
}

// concernsCDI reports whether the runtime's error is about CDI devices.
func concernsCDI(err error) bool { return strings.Contains(status.Convert(err).Message(), "CDI") }

// dropResponses drops the cached responses for the container, so that the device plugins are called
// again when the kubelet tries again: the container cannot be created with these, for example
// because what they name does not exist, and the plugins may say something else by then.
func (a *Admission) dropResponses(ctx context.Context, r *request, reason error) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, r.objectRef(), logkey.Container, r.container)
	dropped, err := a.Responses.Drop(r.uid, r.container)
	switch {
	case err != nil:
		logger.Error(err, "Cached responses of device plugins are still used, although they are of no use")
	case dropped:
		logger.Info(
			"Cached responses of device plugins are of no use; the plugins are called again",
			logkey.Reason,
			reason.Error(),
		)
	}
}
