// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
)

// quotaOf creates a quota for a resource of the default namespace, until the test ends.
func (c *cluster) quotaOf(name string, spec corev1.ResourceQuotaSpec) *corev1.ResourceQuota {
	c.Helper()
	quotas := c.CoreV1().ResourceQuotas(metav1.NamespaceDefault)
	quota, err := quotas.Create(c.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	// A controller would do so; admission waits for it.
	quota.Status = corev1.ResourceQuotaStatus{Hard: spec.Hard, Used: corev1.ResourceList{}}
	for name := range spec.Hard {
		quota.Status.Used[name] = resource.MustParse("0")
	}
	if quota, err = quotas.UpdateStatus(c.Context(), quota, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = quotas.Delete(context.Background(), name, metav1.DeleteOptions{}) // a test may have deleted it
	})
	return quota
}

// eightGPUs is a quota of eight GPUs.
func eightGPUs() corev1.ResourceQuotaSpec {
	return corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("8")}}
}

// tenant returns a client of somebody who may do no more than create pods.
func (c *cluster) tenant() *kube.Client {
	c.Helper()
	meta := metav1.ObjectMeta{Name: "tenant"}
	roles, bindings := c.RbacV1().Roles(metav1.NamespaceDefault), c.RbacV1().RoleBindings(metav1.NamespaceDefault)
	if _, err := roles.Create(c.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := bindings.Create(c.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tenant"}},
	}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := bindings.Delete(ctx, "tenant", metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
		if err := roles.Delete(ctx, "tenant", metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
	client, err := server.Client("tenant")
	if err != nil {
		c.Fatal(err)
	}
	if err := client.AwaitRights(c.Context(), authorizationv1.ResourceAttributes{
		Namespace: metav1.NamespaceDefault, Verb: "create", Resource: "pods",
	}); err != nil {
		c.Fatal(err)
	}
	return client
}

// refusal waits until the pod is refused with a text that contains want.
func (c *cluster) refusal(pod *corev1.Pod, want string) *corev1.Pod {
	c.Helper()
	return c.await(pod, "to be refused because: "+want, func(pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && strings.Contains(condition.Message, want) {
				return true
			}
		}
		return false
	})
}

// A tenant whose namespace has a quota of GPUs tries each way to have some that it does not count.
func TestATenantHasNoMoreDevicesThanItsQuota(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 8)
	startScheduler(t)
	c.quotaOf("gpus", eightGPUs())
	tenant := c.tenant()
	const eight = `"gpu/a/cards":1,"gpu/b/cards":1,"gpu/c/cards":1,"gpu/d/cards":1,` +
		`"gpu/e/cards":1,"gpu/f/cards":1,"gpu/g/cards":1,"gpu/h/cards":1`
	attempt := func(name string, limit int64, requests string, change func(*corev1.Pod)) *corev1.Pod {
		t.Helper()
		pod := newPod(name, limit)
		if requests != "" {
			kube.SetRequests(pod, requests)
		}
		if change != nil {
			change(pod)
		}
		pod, err := tenant.CreatePod(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	c.refusal(attempt("one-limit", 1, eight, nil), `container "main" requests 8 of nvidia.com/gpu in the annotation `+
		`KubeDevice/DeviceInfo and 1 in its limits, 7 are missing there: quota "gpus" of namespace "default" counts `+
		`limits: add "nvidia.com/gpu: 8" to limits of container "main"`)
	c.refusal(attempt("no-limit", 0, eight, nil), "8 are missing there")
	c.refusal(attempt("other-limit", 0, eight, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"vendor.example/thing": resource.MustParse("0")}
	}), "8 are missing there")
	c.refusal(attempt("count", 1, `"nvidia.com/gpu":8`, nil), "7 are missing there")
	annotate := func(list string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			requests := `{` + list + `:{"first":{"requests":{` + eight + `}}}}`
			pod.Annotations = map[string]string{deviceinfo.Annotation: requests}
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox"}}
			if list == `"runningcontainer"` {
				pod.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
		}
	}
	c.refusal(attempt("init", 1, "", annotate(`"initcontainer"`)), `to limits of container "first"`)
	c.refusal(attempt("sidecar", 1, "", annotate(`"runningcontainer"`)), `to limits of container "first"`)

	// What the limits name, the quota has counted.
	honest := c.await(attempt("honest", 2, `"gpugrp0/A/gpu/a/cards":1,"gpugrp0/A/gpu/b/cards":1`, nil), "to be bound",
		kube.Scheduled)
	if got := len(strings.Fields(devices(honest))); got != 2 {
		t.Errorf("the pod has %s, want two GPUs", devices(honest))
	}
	c.await(attempt("part", 0, `"gpu/a/memory":1073741824`, nil), "to be bound", kube.Scheduled)
}

// A pod that was refused is scheduled when its reason goes away: the request, or the quota.
func TestAPodIsTriedAgainWhenItsQuotaOrItsRequestChanges(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 8)
	startScheduler(t)
	pods := c.CoreV1().Pods(metav1.NamespaceDefault)
	quotas := c.CoreV1().ResourceQuotas(metav1.NamespaceDefault)
	c.quotaOf("gpus", eightGPUs())

	smaller := c.refusal(c.create(annotatedPod("smaller")), "1 are missing there")
	smaller = smaller.DeepCopy()
	kube.SetRequests(smaller, `"gpu/a/memory":1073741824`)
	if _, err := pods.Update(t.Context(), smaller, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await(smaller, "to be bound", kube.Scheduled)

	waits := c.refusal(c.create(annotatedPod("waits")), "1 are missing there")
	if err := quotas.Delete(t.Context(), "gpus", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await(waits, "to be bound", kube.Scheduled)
}

// Elsewhere the annotation alone is enough, as it always was; an event says what quotas would miss.
func TestWithoutAQuotaAnEventSaysWhatIsNotCounted(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	scheduler := startScheduler(t)
	pod := c.schedule(annotatedPod("p"))
	c.awaitEvent(pod, "DevicesBeyondLimits", `add "nvidia.com/gpu: 1" to limits of container "main"`)
	c.schedule(newPod("silent", 1))
	scheduler.kill()

	startSchedulerWith(t, []string{"--device-quota=everywhere"})
	c.delete(pod)
	c.refusal(c.create(annotatedPod("refused")), "the scheduler runs with --device-quota=everywhere")
}

// awaitEvent waits for an event of a pod, of which want is a part.
func (c *cluster) awaitEvent(pod *corev1.Pod, reason, want string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	watch, err := c.CoreV1().Events(pod.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(pod.UID),
	})
	if err != nil {
		c.Fatal(err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		if written, ok := event.Object.(*corev1.Event); ok {
			if !strings.Contains(written.Message, want) {
				c.Errorf("the event %s is %q, want it to have %q", reason, written.Message, want)
			}
			return
		}
	}
	c.Errorf("there is no event %s", reason)
}
