// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/crio"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/devicecheck"
)

// newDeviceCheck returns what finds containers without their devices at the runtime behind
// upstream, which serves the endpoint.
func newDeviceCheck(upstream *grpc.ClientConn, endpoint string, found missingReporter) *devicecheck.Checker {
	return devicecheck.New(devicecheck.CRI(upstream, crioAt(endpoint)), found)
}

// missingReporter counts containers without their devices, and puts a warning on their pods.
type missingReporter struct {
	metrics *nodeMetrics
	events  *announcer
}

var _ devicecheck.Observer = missingReporter{}

// Missing implements devicecheck.Observer.
func (m missingReporter) Missing(pod *corev1.ObjectReference, vendor, handler, message string) {
	m.metrics.missing.WithLabelValues(vendor, handler).Inc()
	m.events.Warn(pod, reasonMissing, message)
}

// crioAt is the endpoint of a container runtime that is CRI-O.
type crioAt string

var _ devicecheck.CRIO = crioAt("")

// Configuration implements devicecheck.CRIO.
func (e crioAt) Configuration(ctx context.Context) (string, error) {
	socket, err := criproxy.SocketPath(string(e))
	if err != nil {
		return "", err
	}
	return crio.Socket(socket).Configuration(ctx)
}
