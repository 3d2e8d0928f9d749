// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// countedGPUs is gpus that says which resource counts its GPUs.
type countedGPUs struct{ gpus }

func (*countedGPUs) CountedDevices() []devicescheduler.CountedDevice {
	return []devicescheduler.CountedDevice{{Plain: "nvidia.com/gpu", Level: "gpu", Resource: "cards"}}
}

// quota returns a quota of this many of a resource in the namespace of newPod.
func quota(name v1.ResourceName, scopes ...v1.ResourceQuotaScope) *v1.ResourceQuota {
	return &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"},
		Spec:       v1.ResourceQuotaSpec{Hard: v1.ResourceList{name: resource.MustParse("8")}, Scopes: scopes},
	}
}

// waiting makes the pod one that waits.
func (f *fixture) waiting(pod *v1.Pod) {
	f.Helper()
	if err := f.client.Tracker().Add(pod); err != nil {
		f.Fatal(err)
	}
	await(f, "the informer has the pod", func() bool {
		_, known, err := f.plugin.pods.GetByKey(pod.Namespace + "/" + pod.Name)
		return known && err == nil
	})
}

// preFilter runs PreFilter for a pod.
func (f *fixture) preFilter(pod *v1.Pod) *fwk.Status {
	_, status, _ := f.framework.RunPreFilterPlugins(f.Context(), framework.NewCycleState(), pod)
	return status
}

// awaitActivation waits until pods are activated, and returns them.
func (f *fixture) awaitActivation() map[string]*v1.Pod {
	f.Helper()
	await(f, "pods are tried again", func() bool {
		f.clock.Step(time.Millisecond) // the delay is 0, and begins at any time
		return len(f.activated) > 0
	})
	return <-f.activated
}

// warnings returns the events that were written.
func (f *fixture) warnings() []string {
	var all []string
	for len(f.events.Events) > 0 {
		all = append(all, <-f.events.Events)
	}
	return all
}

func TestPodsThatRequestMoreThanTheirLimitsPassByNoQuota(t *testing.T) {
	pairs := func(limit int64) *v1.Pod {
		return annotated(newPod("p", limit),
			`{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/cards":1,"pair/A/gpu/b/cards":1}}}}`)
	}
	ends := pairs(1)
	ends.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	elsewhere := quota("requests.nvidia.com/gpu")
	elsewhere.Namespace = "other"
	selected := quota("requests.nvidia.com/gpu")
	selected.Spec.ScopeSelector = &v1.ScopeSelector{MatchExpressions: []v1.ScopedResourceSelectorRequirement{{
		ScopeName: v1.ResourceQuotaScopePriorityClass, Operator: v1.ScopeSelectorOpIn, Values: []string{"high"},
	}}}
	const refused, warned, silent = "refused", "warned", ""
	for name, test := range map[string]struct {
		mode  QuotaMode
		quota *v1.ResourceQuota
		pod   *v1.Pod
		want  string
	}{
		"a quota that names the resource": {quota: quota("requests.nvidia.com/gpu"), pod: pairs(1), want: refused},
		"a quota of limits":               {quota: quota("limits.nvidia.com/gpu"), pod: pairs(1), want: refused},
		"limits that are large enough":    {quota: quota("requests.nvidia.com/gpu"), pod: pairs(2), want: silent},
		"no quota":                        {pod: pairs(1), want: warned},
		"a quota of another resource":     {quota: quota("requests.cpu"), pod: pairs(1), want: warned},
		"a quota of another namespace":    {quota: elsewhere, pod: pairs(1), want: warned},
		"a quota for pods that end": {
			quota: quota("requests.nvidia.com/gpu", v1.ResourceQuotaScopeTerminating), pod: pairs(1), want: warned,
		},
		"the same for a pod that ends": {
			quota: quota("requests.nvidia.com/gpu", v1.ResourceQuotaScopeTerminating), pod: ends, want: refused,
		},
		"a quota for a priority class": {quota: selected, pod: pairs(1), want: warned},
		"a quota, and no refusals": {
			mode: QuotaWarn, quota: quota("requests.nvidia.com/gpu"), pod: pairs(1), want: warned,
		},
		"no quota, and refusals for all":  {mode: QuotaEverywhere, pod: pairs(1), want: refused},
		"limits, and refusals for all":    {mode: QuotaEverywhere, pod: pairs(2), want: silent},
		"no annotation, refusals for all": {mode: QuotaEverywhere, pod: newPod("p", 2), want: silent},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureOf(t, &countedGPUs{}, []*v1.Node{newNode("n", "GPU-0", "GPU-1")})
			f.waiting(test.pod)
			f.plugin.quotaMode = test.mode
			if test.quota != nil {
				if err := f.client.Tracker().Add(test.quota); err != nil {
					t.Fatal(err)
				}
			}
			status := f.preFilter(test.pod)
			if strings.Contains(status.Message(), "does not know yet") {
				if waits := f.awaitActivation(); waits[string(test.pod.UID)] == nil {
					t.Errorf("the pod is not tried again, but %v", waits)
				}
				status = f.preFilter(test.pod)
			}
			if got := status.Code() == fwk.UnschedulableAndUnresolvable; got != (test.want == refused) {
				t.Fatalf("status %v, want that the pod is %q", status, test.want)
			}
			const line = `add "nvidia.com/gpu: 2" to limits of container "main"`
			if test.want == refused && !strings.Contains(status.Message(), line) {
				t.Errorf("the reason is %s", status.Message())
			}
			f.preFilter(test.pod) // no second event
			if got := f.warnings(); len(got) > 1 || (len(got) == 1) != (test.want == warned) {
				t.Errorf("the events are %q, want that the pod is %q", got, test.want)
			}
		})
	}
}

func TestAPartOfADeviceIsRefusedWhereAQuotaAllowsNoDevice(t *testing.T) {
	part := func() *v1.Pod {
		return annotated(newPod("p", 0), `{"runningcontainer":{"main":{"requests":{"gpu/a/memory":1}}}}`)
	}
	none := func(name v1.ResourceName) *v1.ResourceQuota {
		q := quota(name)
		q.Spec.Hard[name] = resource.MustParse("0")
		return q
	}
	const text = `requests a part of a device of nvidia.com/gpu, and quota "q" of namespace "default" allows none`
	for name, test := range map[string]struct {
		mode    QuotaMode
		quota   *v1.ResourceQuota
		refused bool
	}{
		"no quota":                         {},
		"a quota of some":                  {quota: quota("requests.nvidia.com/gpu")},
		"a quota of none":                  {quota: none("requests.nvidia.com/gpu"), refused: true},
		"a quota of none by limits":        {quota: none("limits.nvidia.com/gpu"), refused: true},
		"a quota of no CPU":                {quota: none("requests.cpu")},
		"a quota of none, and no refusals": {mode: QuotaWarn, quota: none("requests.nvidia.com/gpu")},
		"a quota of none, refusals for all": {
			mode: QuotaEverywhere, quota: none("requests.nvidia.com/gpu"), refused: true,
		},
		"no quota, refusals for all": {mode: QuotaEverywhere},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureOf(t, &countedGPUs{}, []*v1.Node{newNode("n", "GPU-0")})
			pod := part()
			f.waiting(pod)
			f.plugin.quotaMode = test.mode
			if test.quota != nil {
				if err := f.client.Tracker().Add(test.quota); err != nil {
					t.Fatal(err)
				}
			}
			status := f.preFilter(pod)
			if strings.Contains(status.Message(), "does not know yet") {
				f.awaitActivation()
				status = f.preFilter(pod)
			}
			if refused := strings.Contains(status.Message(), text); refused != test.refused {
				t.Errorf("status %v, want that the pod is refused: %t", status, test.refused)
			}
		})
	}
}

func TestAPodIsTriedAgainWhenAQuotaChanges(t *testing.T) {
	pod := annotated(newPod("p", 0), `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/cards":1}}}}`)
	f := newFixtureOf(t, &countedGPUs{}, []*v1.Node{newNode("n", "GPU-0")})
	f.waiting(pod)
	q := quota("requests.nvidia.com/gpu")
	if err := f.client.Tracker().Add(q); err != nil {
		t.Fatal(err)
	}
	f.preFilter(pod)
	f.awaitActivation() // the quotas are known
	if status := f.preFilter(pod); status.IsSuccess() {
		t.Fatal("the pod passes by the quota")
	}
	quotas := f.client.CoreV1().ResourceQuotas(q.Namespace)
	q = q.DeepCopy()
	q.Spec.Hard = v1.ResourceList{"requests.cpu": resource.MustParse("1")}
	if _, err := quotas.Update(t.Context(), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if waits := f.awaitActivation(); waits[string(pod.UID)] == nil {
		t.Errorf("activated are %v", waits)
	}
	if status := f.preFilter(pod); !status.IsSuccess() {
		t.Errorf("status %v, although no quota names the resource any more", status)
	}
	q = q.DeepCopy()
	q.Status.Used = v1.ResourceList{"requests.cpu": resource.MustParse("1")} // wakes no pod
	if _, err := quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := quotas.Delete(t.Context(), q.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.awaitActivation()
	if len(f.activated) > 0 {
		t.Error("pods are woken by the status of a quota")
	}
}

func TestTheModesOfQuotasAreThoseThatTheFlagNames(t *testing.T) {
	for text, ok := range map[string]bool{"warn": true, "enforce": true, "everywhere": true, "": false, "off": false} {
		mode := QuotaMode("before")
		err := mode.Set(text)
		if (err == nil) != ok || ok && mode.String() != text || !ok && mode != "before" {
			t.Errorf("%q: mode %q, error %v", text, mode, err)
		}
	}
}
