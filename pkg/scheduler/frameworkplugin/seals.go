// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Seals are the keys that allocations are sealed with, and what is demanded of bound pods. The zero
// value is a scheduler without seals.
type Seals struct {
	// Keys sign the pods that are bound, in every mode, and verify those that are. They may be nil
	// in the mode off.
	Keys *seal.File
	// Mode says what a bound pod without a valid seal holds: in the modes off and warn, what its
	// annotation says; in the mode enforce, what its node reports.
	Mode seal.Mode
}

// verifies reports whether bound pods' seals are verified.
func (s Seals) verifies() bool { return s.Mode == seal.Warn || s.Mode == seal.Enforce }

// bytes returns how much a Binding may grow by its seal.
func (s Seals) bytes() int {
	if s.Keys == nil {
		return 0
	}
	return len(seal.Annotation) + seal.MaxBytes
}

// sealOf returns the seal for a pod that is about to be bound to the node with the allocation that
// is reserved for it there, of which annotation is the text.
func (s *Shared) sealOf(pod *v1.Pod, nodeName, annotation string) (string, error) {
	allocation := s.nodes.ReservedAllocation(nodeName, pod.UID)
	if allocation == nil {
		return "", fmt.Errorf("seal the allocation of pod %q: it has been released", klog.KObj(pod))
	}
	verifier := s.seals.Keys.Verifier()
	text, err := s.seals.Keys.Signer().Seal(seal.Decision{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: nodeName,
		Allocation: seal.DigestOf(allocation), Time: s.clock.Now(),
	})
	if err == nil && s.seals.verifies() {
		s.nodes.Sealed(verifier, pod.UID, annotation, text)
	}
	return text, err
}

// followSeals follows the file of keys, and reports bound pods without a valid seal.
func (s *Shared) followSeals() {
	clk := s.clock
	if s.seals.Keys != nil {
		s.Run(func(ctx context.Context) {
			s.seals.Keys.Watch(ctx, clk, func(err error) { s.keysRead(ctx, err) })
		})
	}
	if s.seals.verifies() {
		s.runWhileLeading(reportInterval, func(context.Context) { s.unsealed.report(s.recorder, s.seals.Mode) })
	}
}

// keysRead goes on after the file of keys was read again, because it has changed or with an error.
func (s *Shared) keysRead(ctx context.Context, err error) {
	logger := klog.FromContext(ctx)
	if err != nil {
		metrics.SealKeyReloads.WithLabelValues("failed").Inc()
		logger.Error(err, "The keys of seals cannot be read again; the previous ones stay in use")
		return
	}
	metrics.SealKeyReloads.WithLabelValues("changed").Inc()
	verifier := s.seals.Keys.Verifier()
	logger.Info("The keys of seals have changed", logkey.Signer, s.seals.Keys.Signer().KeyID(),
		logkey.Keys, verifier.KeyIDs())
	if stated := s.seals.Keys.Mode(); stated != "" && stated != s.seals.Mode {
		logger.Info("The keys state another seal mode than this scheduler uses; it is read at the start, so restart "+
			"the scheduler, unless its configuration sets sealMode", logkey.SealMode, string(s.seals.Mode),
			logkey.Stated, string(stated))
	}
	if s.seals.Mode == seal.Enforce {
		s.nodes.Enforce(verifier)
		s.requeuer.activateAfter(0)
	}
	if s.seals.verifies() {
		for _, obj := range s.pods.List() {
			s.verifySeal(obj.(*v1.Pod))
		}
	}
}

// verifySeal notes whether a pod is bound with devices and without a valid seal.
func (s *Shared) verifySeal(pod *v1.Pod) {
	if s.seals.verifies() {
		s.unsealed.noteProblem(pod, s.nodes.CheckSeal(s.seals.Keys.Verifier(), pod))
	}
}

// unsealedPods are the bound pods that have an allocation and no valid seal.
type unsealedPods struct {
	mu   sync.Mutex
	pods map[types.UID]*unsealedPod
}

type unsealedPod struct {
	pod      *v1.Pod
	err      error
	reported bool // in an event
}

// noteProblem keeps in mind why a pod's seal is not valid, or forgets the pod when err is nil.
func (u *unsealedPods) noteProblem(pod *v1.Pod, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.pods[pod.UID]
	if before != nil {
		metrics.UnsealedPods.WithLabelValues(string(seal.ReasonOf(before.err))).Dec()
	}
	if err == nil {
		delete(u.pods, pod.UID)
		return
	}
	metrics.UnsealedPods.WithLabelValues(string(seal.ReasonOf(err))).Inc()
	if u.pods == nil {
		u.pods = map[types.UID]*unsealedPod{}
	}
	u.pods[pod.UID] = &unsealedPod{pod: pod, err: err, reported: before != nil && before.reported}
}

// forget forgets a pod that no longer exists.
func (u *unsealedPods) forget(pod *v1.Pod) { u.noteProblem(pod, nil) }

// report reports some of the pods that were not reported yet, each with an event, once.
func (u *unsealedPods) report(recorder events.EventRecorder, mode seal.Mode) {
	consequence := "the scheduler takes its devices for free unless its node reports them"
	if mode == seal.Warn {
		consequence = "with --device-seal-mode=enforce the scheduler would take its devices for free"
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	count := 0
	for _, p := range u.pods {
		if p.reported {
			continue
		}
		if count++; count > maxReports {
			return
		}
		p.reported = true
		recorder.Eventf(p.pod, nil, v1.EventTypeWarning, "UnsealedAllocation", "Scheduling", "%v; %s",
			p.err, consequence)
	}
}
