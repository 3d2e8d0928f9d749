// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fwk "k8s.io/kube-scheduler/framework"
)

var everything = labels.Everything()

// await waits until the condition holds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// fits reports whether a pod of one GPU fits the node.
func (r *rig) fits(nodeName string) bool {
	r.Helper()
	_, status := r.fit(newPod("probe", 1), nodeName)
	return status.IsSuccess()
}

var pods = schema.GroupResource{Resource: "pods"}

func TestABindingThatWasRefusedGivesItsDevicesBackAtOnce(t *testing.T) {
	for name, err := range map[string]error{
		"forbidden":          apierrors.NewForbidden(pods, "p", errors.New("no")),
		"not found":          apierrors.NewNotFound(pods, "p"),
		"bad request":        apierrors.NewBadRequest("no"),
		"too many requests":  apierrors.NewTooManyRequests("later", 1),
		"connection refused": syscall.ECONNREFUSED,
	} {
		t.Run(name, func(t *testing.T) {
			if !refused(err) {
				t.Error("is not taken for a refusal")
			}
		})
	}
	r := newRig(t, []*v1.Node{newNode("n", "A")})
	r.bindingFails(apierrors.NewForbidden(pods, "p", errors.New("no")))
	pod := newPod("p", 1)
	if status := r.bind(r.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
		t.Errorf("Bind says %v", status)
	}
	if got := r.plugin.nodes.Reserved("n", pod.UID); got != "" {
		t.Errorf("still reserved: %s", got)
	}
}

// Nobody knows whether the binding took effect. The devices stay with the pod until it is known.
func TestABindingWithoutAnAnswerKeepsItsDevices(t *testing.T) {
	timeout := apierrors.NewTimeoutError("no answer", 1)
	conflict := apierrors.NewConflict(pods, "p", errors.New("pod p is already assigned to a node"))
	for name, test := range map[string]struct {
		err  error
		then func(*rig, *v1.Pod) // what becomes of the pod
		free bool
	}{
		"it took effect":                        {timeout, func(r *rig, pod *v1.Pod) { r.update(annotated(assumed(pod, "n"), gave("p", "n", "A"))) }, false},
		"somebody else bound the pod elsewhere": {conflict, func(r *rig, pod *v1.Pod) { r.update(assumed(pod, "m")) }, true},
		"a try before it took effect":           {conflict, func(r *rig, pod *v1.Pod) { r.update(annotated(assumed(pod, "n"), gave("p", "n", "A"))) }, false},
		"the pod is gone": {context.DeadlineExceeded, func(r *rig, _ *v1.Pod) {
			if err := r.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default", "p"); err != nil {
				r.Fatal(err)
			}
		}, true},
		"another pod has its name": {context.Canceled, func(r *rig, pod *v1.Pod) {
			other := pod.DeepCopy()
			other.UID = "other"
			r.update(other)
		}, true},
		"it did not take effect": {apierrors.NewInternalError(errors.New("ouch")), func(r *rig, _ *v1.Pod) { r.clock.Step(2 * lateBinding) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, []*v1.Node{newNode("n", "A"), newNode("m")})
			pod := newPod("p", 1)
			r.add(pod)
			r.bindingFails(test.err)
			if status := r.bind(r.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
				t.Errorf("Bind says %v", status)
			}
			if r.fits("n") {
				t.Error("the devices are free before anything is known")
			}
			test.then(r, pod)
			if !test.free {
				if r.plugin.nodes.Reserved("n", "p") == "" {
					t.Error("the devices are not reserved any more, and no snapshot shows the bound pod")
				}
				return
			}
			await(t, "the devices are free", func() bool { return r.fits("n") })
			await(t, "the waker is asked", func() bool { r.clock.Step(0); return len(r.activated) == 1 })
		})
	}
}

// add adds a pod to the API server.
func (r *rig) add(pod *v1.Pod) {
	r.Helper()
	if err := r.client.Tracker().Add(pod); err != nil {
		r.Fatal(err)
	}
}

// update replaces a pod in the API server.
func (r *rig) update(pod *v1.Pod) {
	r.Helper()
	if err := r.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, "default"); err != nil {
		r.Fatal(err)
	}
}

// The pod of an unsure binding is scheduled again: to the same node it goes with the same devices.
func TestAPodOfAnUnsureBindingIsTriedAgainWithTheSameDevices(t *testing.T) {
	r := newRig(t, []*v1.Node{newNode("n", "A", "B")})
	pod := newPod("p", 1)
	r.add(pod)
	r.bindingFails(apierrors.NewTimeoutError("no answer", 1))
	for range 2 {
		if status := r.bind(r.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
			t.Errorf("Bind says %v", status)
		}
	}
	var annotations []string
	for _, binding := range r.bindings() {
		for _, value := range binding.Annotations {
			annotations = append(annotations, value)
		}
	}
	if len(annotations) != 2 || annotations[0] != annotations[1] {
		t.Errorf("bound with %q, want the same twice", annotations)
	}
}

func TestBindingWithoutAReservationIsAnError(t *testing.T) {
	r := newRig(t, []*v1.Node{newNode("n", "A")})
	pod := newPod("p", 1)
	state := r.reserve(pod, "n")
	r.plugin.Unreserve(t.Context(), state, pod, "n")
	if status := r.bind(state, pod, "n"); status.Code() != fwk.Error || len(r.bindings()) > 0 {
		t.Errorf("Bind says %v, bindings %v", status, r.bindings())
	}
}

// apiCacher is what the scheduler binds through when it makes its calls asynchronously.
type apiCacher struct {
	fwk.APICacher
	bindings chan *v1.Binding
	answer   error
}

func (c *apiCacher) BindPod(binding *v1.Binding) (<-chan error, error) {
	c.bindings <- binding
	return nil, nil
}

func (c *apiCacher) WaitOnFinish(context.Context, <-chan error) error { return c.answer }

func TestBindingGoesThroughTheAPICacherWhereThereIsOne(t *testing.T) {
	r := newRig(t, []*v1.Node{newNode("n", "A")})
	cacher := &apiCacher{bindings: make(chan *v1.Binding, 1)}
	r.framework.SetAPICacher(cacher)
	pod := newPod("p", 1)
	if status := r.bind(r.reserve(pod, "n"), pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	for _, value := range (<-cacher.bindings).Annotations {
		if value != gave("p", "n", "A") {
			t.Errorf("bound with %s", value)
		}
	}
	if got := r.bindings(); len(got) > 0 {
		t.Errorf("the client was asked too: %v", got)
	}

	r = newRig(t, []*v1.Node{newNode("n", "A")})
	cacher.answer = apierrors.NewGenericServerResponse(http.StatusForbidden, "create", pods, "p", "", 0, false)
	r.framework.SetAPICacher(cacher)
	if status := r.bind(r.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
		t.Errorf("Bind says %v", status)
	}
	if got := r.plugin.nodes.Reserved("n", pod.UID); got != "" {
		t.Errorf("still reserved: %s", got)
	}
}
