// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/test/await"
)

// The policies that keep device pods from schedulers without devices.
const (
	namePolicy     = "kubedevice-scheduler-name"
	requiredPolicy = "kubedevice-scheduler-name-required"
)

// readOptional reads a policy of deploy/policies-optional and its binding.
func (c *cluster) readOptional(name string, policy, binding any) {
	c.Helper()
	text, err := os.ReadFile("../../../deploy/policies-optional/" + name + ".yaml")
	if err != nil {
		c.Fatal(err)
	}
	first, second, _ := bytes.Cut(text, []byte("\n---\n"))
	for document, into := range map[*[]byte]any{&first: policy, &second: binding} {
		if err := yaml.UnmarshalStrict(*document, into); err != nil {
			c.Fatal(err)
		}
	}
}

// nameSchedulers installs the mutating policy until the test ends, with these devices in place of
// its own if there are any, and waits until it is in force.
func (c *cluster) nameSchedulers(devices string) {
	c.Helper()
	var policy admissionv1.MutatingAdmissionPolicy
	var binding admissionv1.MutatingAdmissionPolicyBinding
	c.readOptional(namePolicy, &policy, &binding)
	if devices != "" {
		policy.Spec.Variables[0].Expression = devices
	}
	api := c.AdmissionregistrationV1()
	if _, err := api.MutatingAdmissionPolicies().Create(c.Context(), &policy, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := api.MutatingAdmissionPolicyBindings().Create(c.Context(), &binding,
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	inForce := func(pod *corev1.Pod, err error) bool { return err == nil && pod.Spec.SchedulerName != defaultName }
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := api.MutatingAdmissionPolicyBindings().Delete(ctx, namePolicy, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
		if err := api.MutatingAdmissionPolicies().Delete(ctx, namePolicy, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
		c.awaitAdmission(ctx, func(pod *corev1.Pod, err error) bool { return !inForce(pod, err) })
	})
	c.awaitAdmission(c.Context(), inForce)
}

// requireSchedulers installs the validating policy until the test ends, and waits until it is in
// force.
func (c *cluster) requireSchedulers() {
	c.Helper()
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	c.readOptional(requiredPolicy, &policy, &binding)
	api := c.AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicies().Create(c.Context(), &policy, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(c.Context(), &binding,
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	inForce := func(_ *corev1.Pod, err error) bool { return err != nil }
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := api.ValidatingAdmissionPolicyBindings().Delete(ctx, requiredPolicy,
			metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
		if err := api.ValidatingAdmissionPolicies().Delete(ctx, requiredPolicy, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
		c.awaitAdmission(ctx, func(pod *corev1.Pod, err error) bool { return !inForce(pod, err) })
	})
	c.awaitAdmission(c.Context(), inForce)
}

const defaultName = corev1.DefaultSchedulerName

// admit returns what the API server would make of a pod.
func (c *cluster) admit(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// awaitAdmission waits until is holds for what the API server makes of a pod that requests a device
// in its annotation, with or without devices in limits.
func (c *cluster) awaitAdmission(ctx context.Context, is func(*corev1.Pod, error) bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := await.Until(ctx, "the policy to be in force", func(ctx context.Context) (bool, error) {
		return is(c.admit(ctx, annotatedPod("admitted"))), nil
	}); err != nil {
		c.Error(err)
	}
}

// limits returns a pod whose container has these limits of one resource.
func limits(name corev1.ResourceName, quantity string) *corev1.Pod {
	pod := newPod("admitted", 0)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(quantity)}
	return pod
}

// admissions are pods, and whether the policies take them for pods that request devices and that
// are left to the default scheduler.
func admissions() map[string]struct {
	pod  *corev1.Pod
	ours bool
} {
	with := func(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		change(pod)
		return pod
	}
	owned := func(kind string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "owner", Controller: ptr.To(true),
			}}
		}
	}
	return map[string]struct {
		pod  *corev1.Pod
		ours bool
	}{
		"GPUs in limits":                {newPod("admitted", 2), true},
		"GPUs of an init container":     {newPodOf("admitted", "init* main"), true},
		"GPUs of a sidecar":             {newPodOf("admitted", "side* main"), true},
		"GPUs of the last container":    {newPodOf("admitted", "a b c*"), true},
		"a device of Intel's":           {limits("gpu.intel.com/i915", "1"), true},
		"a partition of a GPU":          {limits("nvidia.com/mig-1g.10gb", "1"), true},
		"a request in the annotation":   {annotatedPod("admitted"), true},
		"GPUs and the default name":     {with(newPod("admitted", 1), named(defaultName)), true},
		"GPUs of a Job's pod":           {with(newPod("admitted", 1), owned("Job")), true},
		"GPUs of a DaemonSet's pod":     {with(newPod("admitted", 1), owned("DaemonSet")), true},
		"GPUs and a variable set twice": {with(newPod("admitted", 1), setTwice), true},
		"nothing":                       {newPod("admitted", 0), false},
		"CPU":                           {limits(corev1.ResourceCPU, "1"), false},
		"no GPU":                        {limits("nvidia.com/gpu", "0"), false},
		"storage":                       {limits(corev1.ResourceEphemeralStorage, "1Gi"), false},
		"what is no device":             {limits("example.com/widget", "1"), false},
		"what only ends like a device":  {limits("notnvidia.com/gpu", "1"), false},
		"GPUs and another scheduler":    {with(newPod("admitted", 1), named("other")), false},
		"GPUs and our name":             {with(newPod("admitted", 1), named(frameworkplugin.SchedulerName)), false},
		"GPUs on a node that it names": {
			with(newPod("admitted", 1), func(pod *corev1.Pod) { pod.Spec.NodeName = "n1" }), false,
		},
		"GPUs of a static pod": {with(newPod("admitted", 1), func(pod *corev1.Pod) {
			pod.Spec.NodeName = "n1"
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
		}), false},
	}
}

// named names the pod's scheduler.
func named(scheduler string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.SchedulerName = scheduler }
}

// setTwice makes a pod that the API server takes, and that cannot be merged.
func setTwice(pod *corev1.Pod) {
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
}

func TestThePolicyLeavesPodsThatRequestDevicesToOurScheduler(t *testing.T) {
	c := newCluster(t)
	c.nameSchedulers("")
	for name, test := range admissions() {
		t.Run(name, func(t *testing.T) {
			want := test.pod.DeepCopy()
			pod, err := c.admit(t.Context(), test.pod)
			if err != nil {
				t.Fatal(err)
			}
			if want.Spec.SchedulerName == "" {
				want.Spec.SchedulerName = defaultName
			}
			if test.ours {
				want.Spec.SchedulerName = frameworkplugin.SchedulerName
			}
			if got := pod.Spec.SchedulerName; got != want.Spec.SchedulerName {
				t.Errorf("the scheduler is %s, want %s", got, want.Spec.SchedulerName)
			}
			if got, want := len(pod.Spec.Containers[0].Env), len(want.Spec.Containers[0].Env); got != want {
				t.Errorf("the container has %d variables, want %d", got, want)
			}
		})
	}
}

func TestAnAdministratorSaysWhatADeviceIs(t *testing.T) {
	c := newCluster(t)
	c.nameSchedulers("['nvidia.com/gpu', 'example.com']")
	for resource, want := range map[corev1.ResourceName]string{
		"nvidia.com/gpu":          frameworkplugin.SchedulerName,
		"nvidia.com/mig-1g.10gb":  defaultName,
		"sub.example.com/widget":  frameworkplugin.SchedulerName,
		"gpu.intel.com/i915":      defaultName,
		"badexample.com/anything": defaultName,
	} {
		pod, err := c.admit(t.Context(), limits(resource, "1"))
		if err != nil {
			t.Fatal(err)
		}
		if got := pod.Spec.SchedulerName; got != want {
			t.Errorf("a pod that requests %s has the scheduler %s, want %s", resource, got, want)
		}
	}
}

func TestWithoutANamingPolicyPodsMustNameTheScheduler(t *testing.T) {
	c := newCluster(t)
	c.requireSchedulers()
	for name, test := range admissions() {
		t.Run(name, func(t *testing.T) {
			pod, err := c.admit(t.Context(), test.pod)
			switch {
			case test.ours && !apierrors.IsForbidden(err):
				t.Errorf("the pod is admitted as %v, error %v", pod, err)
			case test.ours && !strings.Contains(err.Error(), "pod default/admitted: it requests devices, and the "+
				"scheduler default-scheduler may be one that binds it without them: write schedulerName: "+
				"kubedevice-scheduler in its spec"):
				t.Errorf("the error is %v", err)
			case !test.ours && err != nil:
				t.Error(err)
			}
		})
	}
	c.nameSchedulers("") // with both, pods have the name before it is requested
}

// ownedPod returns a pod of one GPU that a controller would make again.
func ownedPod(name string) *corev1.Pod {
	pod := newPod(name, 1)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", UID: "owner", Controller: ptr.To(true),
	}}
	return pod
}

// Without the policy, upstream's scheduler binds pods without the devices that they request.
func TestPodsThatAnotherSchedulerBoundWithoutDevicesAreReportedAndEvicted(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	other := startUpstream(t)
	owned, bare := c.schedule(ownedPod("owned")), c.schedule(newPod("bare", 1))
	other.kill()
	startSchedulerWith(t, []string{"--device-evict-unallocated"})
	granted := c.schedule(ownedPod("granted")) // it leads from now on

	c.awaitEvent(owned, "BoundWithoutDevices", "it is evicted, and its controller makes it again")
	c.awaitEvent(bare, "BoundWithoutDevices", `the pod requests devices and was bound to node "n1" without any, by `+
		`another scheduler under the name "default-scheduler", or by a user who set spec.nodeName: its node starts no `+
		`container of it; delete it`)
	c.awaitGone(owned)
	if again := c.schedule(ownedPod("owned")); devices(again) == devices(granted) {
		t.Errorf("the pod that was made again has %s, as another one has", devices(again))
	}
	for _, pod := range []*corev1.Pod{bare, granted} {
		c.await(pod, "to be left alone", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
	}
}

// awaitGone waits until a pod is deleted.
func (c *cluster) awaitGone(pod *corev1.Pod) {
	c.Helper()
	c.until("pod "+pod.Name+" to be deleted", func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

const (
	// streamInterval is the time between two pods of a stream: it has five a second.
	streamInterval = 200 * time.Millisecond
	// streamBound is how many bound pods of a stream exist at a time.
	streamBound = 20
	// streamAhead is how many device pods come before the first of our schedulers does: the first
	// of them has waited for 12 seconds by then, which is long enough to be explained.
	streamAhead = 30
	// streamStage is how many pods are bound between two replacements. Those without a GPU always
	// are, so that takes two seconds or little more.
	streamStage = 5
)

// stream creates pods at a steady pace, every other one with a GPU, until ctx ends. It deletes pods
// that are bound when there are many.
func (c *cluster) stream(ctx context.Context, audit *auditor) error {
	pace := time.NewTicker(streamInterval)
	defer pace.Stop()
	deleted := map[types.UID]bool{}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
		_, err := c.CreatePod(c.Context(), newPod(fmt.Sprintf("p%04d", i), int64(i%2)))
		if err != nil {
			return err
		}
		bound := slices.DeleteFunc(audit.those(true), func(pod *corev1.Pod) bool { return deleted[pod.UID] })
		for _, pod := range bound[min(streamBound, len(bound)):] {
			deleted[pod.UID] = true
			if err := c.CoreV1().Pods(pod.Namespace).Delete(c.Context(), pod.Name, atOnce); err != nil {
				return err
			}
		}
	}
}

// requestsGPUs reports whether a pod of a stream is one with a GPU.
func requestsGPUs(pod *corev1.Pod) bool { return len(pod.Spec.Containers[0].Resources.Limits) > 0 }

// trio is the schedulers of a control plane with three machines, one of which leads.
type trio struct {
	*cluster
	*auditor
	schedulers []*process
}

// replace replaces the schedulers one after another. Each time, whichever leads binds pods before
// the next one is replaced.
func (t *trio) replace(start func() *process) {
	t.Helper()
	for i := range t.schedulers {
		t.schedulers[i].terminate()
		t.schedulers[i] = start()
		t.until("a scheduler to lead", func() bool { return slices.ContainsFunc(t.schedulers, (*process).leads) })
		enough := t.everBound() + streamStage
		t.until("pods to be bound", func() bool { return t.everBound() >= enough })
		t.Logf("%d schedulers are replaced: %d pods were bound, %d wait for devices", i+1, t.everBound(),
			len(t.waiting()))
	}
}

// until waits until is holds, and fails when the auditor has found something.
func (t *trio) until(what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), churnTimeout())
	defer cancel()
	err := await.Until(ctx, what, func(context.Context) (bool, error) { return is(), t.verdict() })
	if err != nil {
		t.Fatal(err)
	}
}

// served waits until all pods that wait now have been bound or deleted, those with a GPU or those
// without.
func (t *trio) served(gpus bool) {
	t.Helper()
	waiting := map[types.UID]bool{}
	for _, pod := range t.those(false) {
		waiting[pod.UID] = requestsGPUs(pod) == gpus
	}
	t.until(fmt.Sprintf("%d pods to be bound", len(waiting)), func() bool {
		return !slices.ContainsFunc(t.those(false), func(pod *corev1.Pod) bool { return waiting[pod.UID] })
	})
}

// waiting returns the pods with a GPU that have no node.
func (t *trio) waiting() []*corev1.Pod {
	return slices.DeleteFunc(t.those(false), func(pod *corev1.Pod) bool { return !requestsGPUs(pod) })
}

// Three schedulers of upstream are replaced by ours, and ours by upstream's, as in an upgrade and
// in one that went wrong, while pods come.
func TestWhileSchedulersAreReplacedNoDevicePodIsBoundWithoutDevices(t *testing.T) {
	c := newCluster(t)
	for i := range 4 {
		c.node(fmt.Sprintf("n%d", i), 16)
	}
	c.nameSchedulers("")
	three := &trio{cluster: c, auditor: c.audit()}
	upstream := func() *process { return startUpstream(t, election...) }
	for range 3 {
		three.schedulers = append(three.schedulers, upstream())
	}
	ctx, cancel := context.WithCancel(t.Context())
	streaming, ctx := errgroup.WithContext(ctx)
	streaming.Go(func() error { return c.stream(ctx, three.auditor) })
	defer func() {
		cancel()
		if err := streaming.Wait(); err != nil {
			t.Error(err)
		}
	}()

	three.until("many device pods to wait", func() bool { return len(three.waiting()) >= streamAhead })
	three.served(false)
	first := slices.MinFunc(three.waiting(), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	three.replace(func() *process { return startSchedulerWith(t, election) })
	three.served(true)
	c.awaitEvent(first, "WaitedForScheduler", `no scheduler that serves the scheduler name "kubedevice-scheduler" led`)

	three.replace(upstream)
	three.until("a device pod to wait again", func() bool { return len(three.waiting()) > 0 })
	three.served(false)
	if len(three.waiting()) == 0 {
		t.Error("no device pod waits, though only schedulers without devices are left")
	}
	if err := three.verdict(); err != nil {
		t.Error(err)
	}
}
