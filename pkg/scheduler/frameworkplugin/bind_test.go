// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"errors"
	"maps"
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

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

var everything = labels.Everything()

// await waits until the condition holds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// fits reports whether a pod of one GPU fits the node.
func (f *fixture) fits(nodeName string) bool {
	f.Helper()
	_, status := f.fit(newPod("probe", 1), nodeName)
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
			if !isNotBound(err) {
				t.Error("is not taken for a refusal")
			}
		})
	}
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	f.bindingFails(apierrors.NewForbidden(pods, "p", errors.New("no")))
	pod := newPod("p", 1)
	if status := f.bind(f.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
		t.Errorf("Bind says %v", status)
	}
	if got := f.plugin.nodes.Reserved("n", pod.UID); got != "" {
		t.Errorf("still reserved: %s", got)
	}
}

// It is not known whether the binding took effect. The devices stay with the pod until it is.
func TestABindingWithoutAnAnswerKeepsItsDevices(t *testing.T) {
	timeout := apierrors.NewTimeoutError("no answer", 1)
	conflict := apierrors.NewConflict(pods, "p", errors.New("pod p is already assigned to a node"))
	for name, test := range map[string]struct {
		err  error
		then func(*fixture, *v1.Pod) // what becomes of the pod
		free bool
	}{
		"it took effect": {
			timeout, func(f *fixture, pod *v1.Pod) {
				f.update(annotated(assumed(pod, "n"), allocationOf("p", "n", "A")))
			}, false,
		},
		"somebody else bound the pod elsewhere": {
			conflict, func(f *fixture, pod *v1.Pod) { f.update(assumed(pod, "m")) }, true,
		},
		"a try before it took effect": {
			conflict, func(f *fixture, pod *v1.Pod) {
				f.update(annotated(assumed(pod, "n"), allocationOf("p", "n", "A")))
			}, false,
		},
		"the pod is gone": {context.DeadlineExceeded, func(f *fixture, _ *v1.Pod) {
			if err := f.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default",
				"p"); err != nil {
				f.Fatal(err)
			}
		}, true},
		"another pod has its name": {context.Canceled, func(f *fixture, pod *v1.Pod) {
			other := pod.DeepCopy()
			other.UID = "other"
			f.update(other)
		}, true},
		"it did not take effect": {
			apierrors.NewInternalError(errors.New("ouch")), func(f *fixture, _ *v1.Pod) {
				f.clock.Step(2 * lateBinding)
			}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []*v1.Node{newNode("n", "A"), newNode("m")})
			pod := newPod("p", 1)
			f.add(pod)
			f.bindingFails(test.err)
			if status := f.bind(f.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
				t.Errorf("Bind says %v", status)
			}
			if f.fits("n") {
				t.Error("the devices are free before anything is known")
			}
			test.then(f, pod)
			if !test.free {
				if f.plugin.nodes.Reserved("n", "p") == "" {
					t.Error("the devices are not reserved any more, and no snapshot shows the bound pod")
				}
				return
			}
			await(t, "the devices are free", func() bool { return f.fits("n") })
			await(t, "pods are activated", func() bool { f.clock.Step(0); return len(f.activated) == 1 })
		})
	}
}

// add adds a pod to the API server.
func (f *fixture) add(pod *v1.Pod) {
	f.Helper()
	if err := f.client.Tracker().Add(pod); err != nil {
		f.Fatal(err)
	}
}

// update replaces a pod in the API server.
func (f *fixture) update(pod *v1.Pod) {
	f.Helper()
	if err := f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, "default"); err != nil {
		f.Fatal(err)
	}
}

// The pod of an unsure binding is scheduled again: to the same node it goes with the same devices.
func TestAPodOfAnUnsureBindingIsTriedAgainWithTheSameDevices(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A", "B")})
	pod := newPod("p", 1)
	f.add(pod)
	f.bindingFails(apierrors.NewTimeoutError("no answer", 1))
	for range 2 {
		if status := f.bind(f.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
			t.Errorf("Bind says %v", status)
		}
	}
	var annotations []string
	for _, binding := range f.bindings() {
		for _, value := range binding.Annotations {
			annotations = append(annotations, value)
		}
	}
	if len(annotations) != 2 || annotations[0] != annotations[1] {
		t.Errorf("bound with %q, want the same twice", annotations)
	}
}

func TestBindingWithoutAReservationIsAnError(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	pod := newPod("p", 1)
	state := f.reserve(pod, "n")
	f.plugin.Unreserve(t.Context(), state, pod, "n")
	if status := f.bind(state, pod, "n"); status.Code() != fwk.Error || len(f.bindings()) > 0 {
		t.Errorf("Bind says %v, bindings %v", status, f.bindings())
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
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	cacher := &apiCacher{bindings: make(chan *v1.Binding, 1)}
	f.framework.SetAPICacher(cacher)
	pod := newPod("p", 1)
	if status := f.bind(f.reserve(pod, "n"), pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	for _, value := range (<-cacher.bindings).Annotations {
		if value != allocationOf("p", "n", "A") {
			t.Errorf("bound with %s", value)
		}
	}
	if got := f.bindings(); len(got) > 0 {
		t.Errorf("the client was asked too: %v", got)
	}

	f = newFixture(t, []*v1.Node{newNode("n", "A")})
	cacher.answer = apierrors.NewGenericServerResponse(http.StatusForbidden, "create", pods, "p", "", 0, false)
	f.framework.SetAPICacher(cacher)
	if status := f.bind(f.reserve(pod, "n"), pod, "n"); status.Code() != fwk.Error {
		t.Errorf("Bind says %v", status)
	}
	if got := f.plugin.nodes.Reserved("n", pod.UID); got != "" {
		t.Errorf("still reserved: %s", got)
	}
}

func TestAPodRequiresKubecriOnlyOnANodeThatSaysItCanBeRequired(t *testing.T) {
	const pods, main = "required-plugins.noderesource.dev/pod", "required-plugins.noderesource.dev/container.main"
	for name, test := range map[string]struct {
		published string
		want      map[string]string
	}{
		"it can": {
			deviceinfo.NRIPlugin, map[string]string{pods: `["mine","kubedevice"]`, main: `["kubedevice"]`},
		},
		"another plugin":  {"evil", nil},
		"nothing is said": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", "A")
			if test.published != "" {
				node.Annotations[deviceinfo.RequiredPluginAnnotation] = test.published
			}
			f := newFixture(t, []*v1.Node{node})
			pod := newPod("p", 1)
			pod.Annotations = map[string]string{pods: "[mine]", main: "[]"}
			f.add(pod)
			if status := f.bind(f.reserve(pod, "n"), pod, "n"); !status.IsSuccess() {
				t.Fatal(status)
			}
			got := f.bindings()[0].Annotations
			delete(got, deviceinfo.Annotation)
			if !maps.Equal(got, test.want) {
				t.Errorf("bound with %q, want %q", got, test.want)
			}
		})
	}
}

// The scheduling queue and this plugin learn of a deletion apart. A hint that was asked before the
// plugin knew found the devices kept, and nothing else would wake pods that wait for them.
func TestPodsAreActivatedWhenAPodIsDeletedThatKeptItsDevices(t *testing.T) {
	for name, answer := range map[string]error{"no answer": apierrors.NewTimeoutError("no answer", 1), "bound": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []*v1.Node{newNode("n", "A")})
			pod := newPod("p", 1)
			f.add(pod)
			if answer != nil {
				f.bindingFails(answer)
			}
			if status := f.bind(f.reserve(pod, "n"), pod, "n"); status.IsSuccess() != (answer == nil) {
				t.Fatal(status)
			}
			f.plugin.podHandler(t.Context()).OnDelete(assumed(pod, "n"))
			if answer == nil {
				f.plugin.requeuer.mu.Lock()
				defer f.plugin.requeuer.mu.Unlock()
				if len(f.activated) > 0 || !f.plugin.requeuer.next.IsZero() {
					t.Error("pods are activated although hints saw the devices free")
				}
				return
			}
			await(t, "pods are activated", func() bool { f.clock.Step(0); return len(f.activated) == 1 })
			if !f.fits("n") {
				t.Error("the devices are not free")
			}
		})
	}
}
