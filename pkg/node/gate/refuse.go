// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// refusal is an error with the code that the kubelet gets.
type refusal struct {
	code  codes.Code
	cause error
	quiet bool // not for the pod's owner
}

func (r *refusal) Error() string { return r.cause.Error() }

func (r *refusal) Unwrap() error { return r.cause }

// never refuses what is wrong with the pod or its devices; only a change there helps.
func never(cause error) error { return &refusal{code: codes.FailedPrecondition, cause: cause} }

// later refuses what may work when it is tried again.
func later(cause error) error { return &refusal{code: codes.Unavailable, cause: cause} }

// undecided is later for a pod that need not be one that devices matter to.
func undecided(cause error) error {
	return &refusal{code: codes.Unavailable, cause: fmt.Errorf("whether the pod asks for devices cannot be told: %w", cause), quiet: true}
}

// invalid refuses what is no request at all.
func invalid(cause error) error {
	return status.Error(codes.InvalidArgument, "kubecri: "+cause.Error())
}

// refuse turns an error into the call's answer, and tells the log and the pod.
func (g *Gate) refuse(ctx context.Context, s subject, err error) error {
	r := &refusal{code: codes.Internal, cause: err}
	errors.As(err, &r)
	klog.FromContext(ctx).Info("A container is refused", "pod", klog.KRef(s.namespace, s.name), "podUID", s.uid, "code", r.code, "reason", err.Error())
	if !r.quiet {
		g.Tell(s.reference(), err.Error())
	}
	return status.Error(r.code, "kubecri: "+err.Error())
}
