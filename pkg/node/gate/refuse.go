// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// refusal is an error with the code that the kubelet gets.
type refusal struct {
	code  codes.Code
	cause error
}

func (r *refusal) Error() string { return r.cause.Error() }

func (r *refusal) Unwrap() error { return r.cause }

// never refuses what is wrong with the pod or its devices; only a change there helps.
func never(cause error) error { return &refusal{codes.FailedPrecondition, cause} }

// later refuses what may work when it is tried again.
func later(cause error) error { return &refusal{codes.Unavailable, cause} }

// invalid refuses what is no request at all.
func invalid(cause error) error {
	return status.Error(codes.InvalidArgument, "kubecri: "+cause.Error())
}

// refuse turns an error into the call's answer, and tells the log and the pod.
func (g *Gate) refuse(ctx context.Context, s subject, err error) error {
	code := codes.Internal
	var r *refusal
	if errors.As(err, &r) {
		code = r.code
	}
	klog.FromContext(ctx).Info("A container is refused", "pod", klog.KRef(s.namespace, s.name), "podUID", s.uid, "code", code, "reason", err.Error())
	// A pod that is not known yet need not be one that devices matter to.
	if !errors.Is(err, pods.ErrUnknown) {
		g.Tell(s.reference(), err.Error())
	}
	return status.Error(code, "kubecri: "+err.Error())
}
