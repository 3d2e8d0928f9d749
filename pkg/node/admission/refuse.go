// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// refusal is an error with the code that the kubelet gets.
type refusal struct {
	code         codes.Code
	cause        error
	withoutEvent bool // not for the pod's owner
	basis        basis
	// until is closed when the cause may have ceased. Nil if that is not known, or never.
	until <-chan struct{}
}

// basis is all that a refusal depends on: while it is the same, the pod is refused again.
type basis int

const (
	// unknownBasis is for a refusal that depends on more than the pod's annotations.
	unknownBasis basis = iota
	// basedOnAnnotation is the pod's UID and its annotation KubeDevice/DeviceInfo.
	basedOnAnnotation
	// basedOnSeal is the same and the annotation KubeDevice/Seal.
	basedOnSeal
)

func (r *refusal) Error() string { return r.cause.Error() }

func (r *refusal) Unwrap() error { return r.cause }

// scheduleAgain is the next step where an allocation cannot be used: one is made once in a pod's
// life.
const scheduleAgain = "delete the pod to have it scheduled again"

// failedPrecondition refuses what is wrong with the pod or its devices; only a change there helps.
func failedPrecondition(cause error) error {
	return &refusal{code: codes.FailedPrecondition, cause: cause}
}

// failedPreconditionOn is failedPrecondition for a refusal that depends on its basis alone.
func failedPreconditionOn(basis basis, cause error) error {
	return &refusal{code: codes.FailedPrecondition, cause: cause, basis: basis}
}

// failedPreconditionUntil is failedPreconditionOn the annotation until the channel is closed, as it
// is when the node's inventory changes.
func failedPreconditionUntil(changed <-chan struct{}, cause error) error {
	return &refusal{code: codes.FailedPrecondition, cause: cause, basis: basedOnAnnotation, until: changed}
}

// unavailable refuses what may work when it is tried again.
func unavailable(cause error) error { return &refusal{code: codes.Unavailable, cause: cause} }

// unavailableWithoutEvent is unavailable for a pod that may have nothing to do with devices.
func unavailableWithoutEvent(cause error) error {
	return &refusal{code: codes.Unavailable, cause: cause, withoutEvent: true}
}

func errRequestsUnknown(cause error) error {
	return unavailableWithoutEvent(fmt.Errorf("whether the pod requests devices is not known: %w", cause))
}

// invalidArgument refuses a call that cannot be read.
func invalidArgument(cause error) error {
	return status.Error(codes.InvalidArgument, "kubecri: "+cause.Error())
}

// refuse turns an error into the answer to the call, and puts it into the log and on the pod.
func (a *Admission) refuse(ctx context.Context, pod podRef, err error) error {
	r := &refusal{code: codes.Internal, cause: err}
	errors.As(err, &r)
	text := clip(err.Error())
	if log, last := a.Refusals.logs(pod.uid, time.Now()); log {
		logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, pod.objectRef(), logkey.PodUID, pod.uid)
		if last {
			logger = klog.LoggerWithValues(logger, logkey.SilentFor, logInterval)
		}
		logger.Info("A container is refused", logkey.Code, r.code, logkey.Reason, text)
	}
	if !r.withoutEvent {
		a.Events.WarnRefused(pod.object(), text)
	}
	return status.Error(r.code, "kubecri: "+text)
}

// Refuse refuses a container, or the sandbox of a pod, for a cause that the frontend has found:
// only a change of the pod helps. It returns the answer, as Admit does.
func (a *Admission) Refuse(ctx context.Context, pod Pod, cause error) error {
	a.Metrics.ObserveContainer(Refused)
	return a.refuse(ctx, newPodRef(pod), failedPrecondition(cause))
}

// maxText is how long, in bytes, what is said of a container may be: as long as the note of an
// event. The pod's owner may have written most of it, and it is said again with each try.
const maxText = 1024

// clip returns a text of at most maxText bytes that the CRI and NRI can transport: both have UTF-8
// alone, and the text may be what a device plugin said.
func clip(text string) string {
	if len(text) <= maxText {
		return strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	return truncate.Ellipsize(text, maxText-len(truncate.Ellipsis))
}
