// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/kube"
)

// The GPUs of the node, and what each has.
const (
	sharedGPUs = 8
	gpuMemory  = 80 << 10 // MiB
	gpuCores   = 100
)

// shareForm is a way to write a request for GPUs.
type shareForm struct {
	limits      map[string]int64
	annotations map[string]string
	// devices is of how many GPUs the pod gets memory, in MiB, and cores each; all of them for 0.
	devices, memory, cores int64
}

// needs returns what the pod gets of all of its GPUs together.
func (s shareForm) needs() (memory, cores int64) {
	if s.memory == 0 {
		return s.devices * gpuMemory, s.devices * gpuCores
	}
	return s.devices * s.memory, s.devices * s.cores
}

// writes returns what the pod's limits say of memory and cores, which is what Kubernetes counts.
func (s shareForm) writes() (memory, cores int64) {
	return s.limits["nvidia.com/gpumem"], s.limits["nvidia.com/gpucores"]
}

// byPath returns the annotation for memory of GPUs.
func byPath(requests string) map[string]string {
	return map[string]string{deviceinfo.Annotation: `{"runningcontainer":{"main":{"requests":{` + requests + `}}}}`}
}

// shareForms are all ways to write shares, and whole GPUs.
var shareForms = map[string]shareForm{
	"hami-memory": {
		limits:  map[string]int64{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 20000},
		devices: 1, memory: 20000,
	},
	"hami-cores": {
		limits:  map[string]int64{"nvidia.com/gpumem": 10000, "nvidia.com/gpucores": 40},
		devices: 1, memory: 10000, cores: 40,
	},
	"hami-two": {
		limits:  map[string]int64{"nvidia.com/gpu": 2, "nvidia.com/gpumem": 15000, "nvidia.com/gpucores": 60},
		devices: 2, memory: 15000, cores: 60,
	},
	"hami-percentage": {
		limits:  map[string]int64{"nvidia.com/gpumem-percentage": 25, "nvidia.com/gpucores": 10},
		devices: 1, memory: 20480, cores: 10,
	},
	"hami-whole":   {limits: map[string]int64{"nvidia.com/gpu": 1}, devices: 1},
	"kai-fraction": {annotations: map[string]string{"gpu-fraction": "0.5"}, devices: 1, memory: 40960},
	"kai-memory": {
		annotations: map[string]string{"gpu-memory": "8192", "gpu-fraction-num-devices": "3"},
		devices:     3, memory: 8192,
	},
	"path": {annotations: byPath(`"gpu/a/memory":"30Gi"`), devices: 1, memory: 30 << 10},
	"path-cores": {
		annotations: byPath(`"gpu/!a/memory":"5Gi","gpu/!a/cores":30,"gpu/!b/memory":"5Gi","gpu/!b/cores":30`),
		devices:     2, memory: 5 << 10, cores: 30,
	},
}

// shareQuota is the quota of a namespace, in MiB and percent; 0 for none.
type shareQuota struct {
	prefix        string
	memory, cores int64
}

// shareQuotas are the namespaces.
var shareQuotas = map[string]shareQuota{
	"team-a": {"requests.", 200_000, 300},
	"team-b": {"requests.", 120_000, 0},
	"team-c": {"limits.", 163_840, 250},
}

// shareOracle computes from what the API server shows what pods hold, on its own.
type shareOracle struct {
	mu    sync.Mutex
	pods  map[apitypes.UID]*corev1.Pod
	wrong []string
	bound int
}

// hold is what a pod holds of one GPU, in MiB and percent.
type hold struct {
	memory, cores int64
	whole         bool
}

// holds reads what a bound pod holds of each GPU, by its ID.
func holds(pod *corev1.Pod) (map[string]hold, error) {
	var written struct {
		RunningContainer map[string]struct {
			DevRequests  map[string]int64  `json:"devrequests"`
			AllocateFrom map[string]string `json:"allocatefrom"`
		} `json:"runningcontainer"`
	}
	if err := json.Unmarshal([]byte(pod.Annotations[deviceinfo.Annotation]), &written); err != nil {
		return nil, err
	}
	held := map[string]hold{}
	for _, container := range written.RunningContainer {
		for request, from := range container.AllocateFrom {
			segments := strings.Split(from, "/")
			id, quantity := segments[len(segments)-2], container.DevRequests[request]
			h := held[id]
			switch segments[len(segments)-1] {
			case "cards":
				h.whole = true
			case "memory":
				h.memory += quantity >> 20
			case "cores":
				h.cores += quantity
			}
			held[id] = h
		}
	}
	for id, h := range held {
		if h.whole {
			held[id] = hold{gpuMemory, gpuCores, true}
		}
	}
	return held, nil
}

// inspect takes an event of a pod, and checks the state after it.
func (o *shareOracle) inspect(event watch.Event) {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok || shareQuotas[pod.Namespace].prefix == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.pods[pod.UID]
	if event.Type == watch.Deleted {
		delete(o.pods, pod.UID)
		return
	}
	o.pods[pod.UID] = pod
	if pod.Spec.NodeName == "" || before != nil && before.Spec.NodeName != "" {
		return
	}
	o.bound++
	held, err := holds(pod)
	if err != nil {
		o.wrong = append(o.wrong, fmt.Sprintf("pod %s: %v", pod.Name, err))
	}
	var memory, cores int64
	for _, h := range held {
		memory, cores = memory+h.memory, cores+h.cores
	}
	form := formOf(pod)
	if wantMemory, wantCores := form.needs(); memory != wantMemory || cores != wantCores ||
		int64(len(held)) != form.devices {
		o.wrong = append(o.wrong, fmt.Sprintf("pod %s has %v", pod.Name, held))
	}
	o.check("after " + pod.Name)
}

// formOf returns the form of a pod.
func formOf(pod *corev1.Pod) shareForm { return shareForms[pod.Labels["form"]] }

// used returns what is held of each GPU, and in each namespace. The caller holds mu.
func (o *shareOracle) used() (gpus, namespaces map[string]hold, sharers map[string]int) {
	gpus, namespaces, sharers = map[string]hold{}, map[string]hold{}, map[string]int{}
	for _, pod := range o.pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		held, err := holds(pod)
		if err != nil {
			continue // was reported
		}
		for id, h := range held {
			g, n := gpus[id], namespaces[pod.Namespace]
			gpus[id] = hold{g.memory + h.memory, g.cores + h.cores, g.whole || h.whole}
			namespaces[pod.Namespace] = hold{n.memory + h.memory, n.cores + h.cores, false}
			sharers[id]++
		}
	}
	return gpus, namespaces, sharers
}

// check notes what is held beyond what there is, and beyond quotas. The caller holds mu.
func (o *shareOracle) check(when string) {
	gpus, namespaces, sharers := o.used()
	for id, g := range gpus {
		if g.memory > gpuMemory || g.cores > gpuCores || g.whole && sharers[id] > 1 {
			o.wrong = append(o.wrong, fmt.Sprintf("%s: %d pods hold %+v of %s", when, sharers[id], g, id))
		}
	}
	for namespace, n := range namespaces {
		if quota := shareQuotas[namespace]; n.memory > quota.memory || quota.cores > 0 && n.cores > quota.cores {
			o.wrong = append(o.wrong, fmt.Sprintf("%s: namespace %s holds %+v", when, namespace, n))
		}
	}
}

// counted returns how many GPUs Kubernetes counts for all bound pods, a share as a whole one. The
// caller holds mu.
func (o *shareOracle) counted() (gpus int64) {
	for _, pod := range o.pods {
		if pod.Spec.NodeName != "" {
			gpus += formOf(pod).limits["nvidia.com/gpu"]
		}
	}
	return gpus
}

// fits returns a pod that waits although quota, GPUs, and what Kubernetes counts have room for it,
// or "".
func (o *shareOracle) fits() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	gpus, namespaces, _ := o.used()
	counted := o.counted()
	for _, pod := range o.pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		form, quota, n := formOf(pod), shareQuotas[pod.Namespace], namespaces[pod.Namespace]
		memory, cores := form.needs()
		if n.memory+memory > quota.memory || quota.cores > 0 && n.cores+cores > quota.cores ||
			counted+form.limits["nvidia.com/gpu"] > sharedGPUs {
			continue
		}
		room := int64(0)
		for i := range sharedGPUs {
			g := gpus[fmt.Sprintf("n1-gpu-%d", i)]
			if form.memory == 0 && g == (hold{}) ||
				form.memory > 0 && g.memory+form.memory <= gpuMemory && g.cores+form.cores <= gpuCores {
				room++
			}
		}
		if room >= form.devices {
			return fmt.Sprintf("%s of %s", pod.Name, pod.Namespace)
		}
	}
	return ""
}

// Pods request shares of GPUs in every way, in three namespaces with quotas. After each event, what
// they hold is what an oracle computes of their requests, no GPU is given out twice, and no
// namespace has more than its quota; and no pod waits for which there is room in both. What
// Kubernetes counts is what limits say.
func TestQuotasHoldForEachWayToWriteAShare(t *testing.T) {
	c := newCluster(t)
	c.node("n1", sharedGPUs)
	startScheduler(t)
	for namespace, quota := range shareQuotas {
		c.shareNamespace(namespace, quota)
	}
	oracle := c.shareOracle()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := slices.Sorted(maps.Keys(shareForms))
	namespaces := slices.Sorted(maps.Keys(shareQuotas))
	for i := range 30 {
		name := names[i%len(names)]
		if i >= 2*len(names) {
			name = names[random.IntN(len(names))]
		}
		c.createShare(fmt.Sprintf("%s-%d", name, i), namespaces[random.IntN(len(namespaces))], name)
	}
	for {
		c.awaitShares(oracle)
		oracle.mu.Lock()
		left := slices.Collect(maps.Values(oracle.pods))
		oracle.mu.Unlock()
		if len(left) == 0 {
			break
		}
		slices.SortFunc(left, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		for _, pod := range left[:min(3, len(left))] {
			c.delete(pod)
		}
		c.countShares()
	}
	if oracle.bound < 15 {
		t.Errorf("only %d pods were ever bound: the quotas are too small for a test", oracle.bound)
	}
}

// shareNamespace creates a namespace with a quota.
func (c *cluster) shareNamespace(name string, quota shareQuota) {
	c.Helper()
	if _, err := c.CoreV1().Namespaces().Create(c.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
	hard := corev1.ResourceList{
		corev1.ResourceName(quota.prefix + "nvidia.com/gpumem"): *resource.NewQuantity(quota.memory,
			resource.DecimalSI),
	}
	if quota.cores > 0 {
		hard[corev1.ResourceName(quota.prefix+"nvidia.com/gpucores")] = *resource.NewQuantity(quota.cores,
			resource.DecimalSI)
	}
	quotas := c.CoreV1().ResourceQuotas(name)
	created, err := quotas.Create(c.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "shares"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := quotas.Delete(ctx, "shares", metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
		if err := c.CoreV1().Pods(name).DeleteCollection(ctx, atOnce, metav1.ListOptions{}); err != nil {
			c.Error(err)
		}
	})
	created.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{}}
	for name := range hard {
		created.Status.Used[name] = resource.MustParse("0")
	}
	if _, err = quotas.UpdateStatus(c.Context(), created, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// createShare creates a pod of a form. One that the API server refuses would exceed the quota by
// what its limits say.
func (c *cluster) createShare(name, namespace, form string) {
	c.Helper()
	pod := kube.NewPod(name, "busybox")
	pod.Namespace, pod.Labels = namespace, map[string]string{"form": form}
	pod.Annotations = maps.Clone(shareForms[form].annotations)
	limits := corev1.ResourceList{}
	for resourceName, quantity := range shareForms[form].limits {
		limits[corev1.ResourceName(resourceName)] = *resource.NewQuantity(quantity, resource.DecimalSI)
	}
	pod.Spec.Containers[0].Resources.Limits = limits
	_, err := c.CreatePod(c.Context(), pod)
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: shares") {
		memory, cores := shareForms[form].writes()
		if memory+cores == 0 || shareQuotas[namespace].prefix != "requests." {
			c.Errorf("pod %s of %s writes nothing that Kubernetes counts: %v", name, namespace, err)
		}
		return
	}
	if err != nil {
		c.Fatal(err)
	}
}

// shareOracle returns an oracle that follows all pods from now on.
func (c *cluster) shareOracle() *shareOracle {
	c.Helper()
	now, err := c.CoreV1().Pods(metav1.NamespaceAll).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	pods := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
	events, err := watchtools.NewRetryWatcherWithContext(c.Context(), now.ResourceVersion, pods)
	if err != nil {
		c.Fatal(err)
	}
	o := &shareOracle{pods: map[apitypes.UID]*corev1.Pod{}}
	var following sync.WaitGroup
	following.Go(func() {
		for event := range events.ResultChan() {
			o.inspect(event)
		}
	})
	c.Cleanup(func() {
		events.Stop()
		following.Wait()
	})
	return o
}

// awaitShares waits until the oracle has all pods and no pod waits that fits, and checks what was
// seen until then, and what quotas count.
func (c *cluster) awaitShares(oracle *shareOracle) {
	c.Helper()
	var there []corev1.Pod
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	if err := await.Success(ctx, "all pods to be bound that fit", func(ctx context.Context) error {
		there = nil
		for namespace := range shareQuotas {
			list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			there = append(there, list.Items...)
		}
		oracle.mu.Lock()
		seen := len(oracle.pods)
		oracle.mu.Unlock()
		if seen != len(there) {
			return fmt.Errorf("the oracle has %d of %d pods", seen, len(there))
		}
		if waits := oracle.fits(); waits != "" {
			return fmt.Errorf("%s waits", waits)
		}
		return nil
	}); err != nil {
		c.Fatal(err)
	}
	oracle.mu.Lock()
	defer oracle.mu.Unlock()
	for _, wrong := range oracle.wrong {
		c.Error(wrong)
	}
	oracle.wrong = nil
	for namespace, quota := range shareQuotas {
		memory, cores := writtenIn(there, namespace)
		found, err := c.CoreV1().ResourceQuotas(namespace).Get(c.Context(), "shares", metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		if quota.prefix == "limits." {
			memory, cores = 0, 0 // Kubernetes does not count these
		}
		used := found.Status.Used[corev1.ResourceName(quota.prefix+"nvidia.com/gpumem")]
		usedCores := found.Status.Used[corev1.ResourceName(quota.prefix+"nvidia.com/gpucores")]
		if used.Value() != memory || quota.cores > 0 && usedCores.Value() != cores {
			c.Errorf("the quota of %s has used %v and %v, and its pods write %d and %d", namespace, &used, &usedCores,
				memory, cores)
		}
	}
}

// writtenIn returns what the limits of a namespace's pods say.
func writtenIn(pods []corev1.Pod, namespace string) (memory, cores int64) {
	for i := range pods {
		if pods[i].Namespace == namespace {
			m, n := formOf(&pods[i]).writes()
			memory, cores = memory+m, cores+n
		}
	}
	return memory, cores
}

// countShares does what Kubernetes' quota controller does after pods were deleted.
func (c *cluster) countShares() {
	c.Helper()
	for namespace, quota := range shareQuotas {
		if quota.prefix != "requests." {
			continue
		}
		list, err := c.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{})
		if err != nil {
			c.Fatal(err)
		}
		memory, cores := writtenIn(list.Items, namespace)
		quotas := c.CoreV1().ResourceQuotas(namespace)
		found, err := quotas.Get(c.Context(), "shares", metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		found.Status.Used = corev1.ResourceList{
			corev1.ResourceName(quota.prefix + "nvidia.com/gpumem"): *resource.NewQuantity(memory, resource.DecimalSI),
		}
		if quota.cores > 0 {
			found.Status.Used[corev1.ResourceName(quota.prefix+"nvidia.com/gpucores")] = *resource.NewQuantity(cores,
				resource.DecimalSI)
		}
		if _, err := quotas.UpdateStatus(c.Context(), found, metav1.UpdateOptions{}); err != nil {
			c.Fatal(err)
		}
	}
}
