// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdkresource "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
	"github.com/kubedevice/kubedevice/test/hostile"
)

// tenants are the namespaces in addition to one whose pods request no devices.
type tenants struct {
	count  int
	rate   float64 // pods that each creates in a second
	period time.Duration
}

const (
	// settling is how long tenants create pods before it counts, and clearing how long it takes
	// until what they leave is forgotten.
	settling, clearing = time.Second, time.Second
	// heldByTenant is how many pods a tenant leaves: it removes its oldest for each further one.
	heldByTenant = 20
	// plainPods are those without devices that wait or are on their way, at any time.
	plainPods = 12 * callers
)

// run measures all kinds of periods in turn.
func (t tenants) run(ctx context.Context, b *bench, nodes int) (result report.Tenants, err error) {
	result = report.Tenants{Nodes: nodes, Tenants: t.count, Rate: t.rate, Seconds: t.period.Seconds()}
	if err := t.prepare(ctx, b, nodes); err != nil {
		return result, err
	}
	scheduler, err := b.start("tenants", true)
	if err != nil {
		return result, err
	}
	defer scheduler.stop()
	limited, cancel := context.WithTimeoutCause(ctx, drainTimeout, fmt.Errorf("it was not in %v", drainTimeout))
	defer cancel()
	if err := scheduler.awaitReady(limited); err != nil {
		return result, fmt.Errorf("%w; its log ends with:\n%s", err, scheduler.said())
	}
	plain := &plainStream{bench: b, scheduler: scheduler.name, ready: make(chan string, plainPods)}
	group, inner := errgroup.WithContext(ctx)
	streaming, stop := context.WithCancel(inner)
	group.Go(func() error { return plain.run(streaming) })
	group.Go(func() (err error) {
		defer stop()
		for round := range b.rounds {
			samples := map[report.Crowd]report.Period{}
			for i := range report.Crowds {
				crowd := (i + report.Crowd(round)) % report.Crowds
				if samples[crowd], err = t.measure(inner, b, scheduler, plain, crowd, uint64(round)); err != nil {
					return fmt.Errorf("round %d, %v: %w", round+1, crowd, err)
				}
			}
			result.Rounds = append(result.Rounds, samples)
			fmt.Fprintf(os.Stderr, "round %d: %s\n", round+1, result.Last())
		}
		return t.takeProfiles(inner, b, scheduler, plain)
	})
	return result, group.Wait()
}

// prepare makes nodes of two machines, of which no two are alike, and the tenants' namespaces.
func (t tenants) prepare(ctx context.Context, b *bench, nodes int) error {
	machines := []hostile.Machine{hostile.EightGPUs, hostile.HostedDevices}
	err := each(ctx, nodes, func(ctx context.Context, i int) error {
		node, err := machines[i%len(machines)].Node(fmt.Sprintf("node-%05d", i), i)
		if err != nil {
			return err
		}
		node.UID, node.ResourceVersion = "", ""
		info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
		if err != nil {
			return err
		}
		for name, count := range info.Allocatable { // as its kubelet counts them
			if sdkresource.IsExtendedResource(name) {
				node.Status.Capacity[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
			}
		}
		_, err = b.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	return each(ctx, t.count, func(ctx context.Context, i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant(i)}}
		if _, err := b.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create namespace %s: %w", namespace.Name, err)
		}
		return nil
	})
}

func tenant(number int) string { return fmt.Sprintf("tenant-%d", number) }

// measure returns how many pods without devices are bound in one period, in which no garbage of the
// API server is collected.
func (t tenants) measure(
	ctx context.Context, b *bench, scheduler *process, plain *plainStream, crowd report.Crowd, seed uint64,
) (sample report.Period, err error) {
	release := holdGarbage()
	defer release()
	group, inner := errgroup.WithContext(ctx)
	crowded, leave := context.WithCancel(inner)
	defer leave()
	for i := range t.count {
		if crowd != report.NoTenants {
			group.Go(func() error { return t.create(crowded, b, scheduler.name, i, crowd, seed) })
		}
	}
	if err := sleep(inner, settling); err != nil {
		leave()
		return sample, group.Wait()
	}
	before, err := scheduler.metrics(ctx)
	if err != nil {
		return sample, err
	}
	began, bound, spent := time.Now(), plain.bound.Load(), scheduler.cpu()
	if err := sleep(inner, t.period); err != nil {
		leave()
		return sample, group.Wait()
	}
	sample.Sample = report.Sample{
		Pods: int(plain.bound.Load() - bound), Seconds: time.Since(began).Seconds(),
		CPUSeconds: (scheduler.cpu() - spent).Seconds(),
	}
	after, err := scheduler.metrics(ctx)
	if err != nil {
		return sample, err
	}
	sample.Refusals = int(after.refusals() - before.refusals())
	leave()
	if err := group.Wait(); err != nil {
		return sample, err
	}
	return sample, t.remove(ctx, b, crowd)
}

// takeProfiles takes a CPU profile of the scheduler with each kind of tenants, apart from the
// rounds, which that would make slower.
func (t tenants) takeProfiles(ctx context.Context, b *bench, scheduler *process, plain *plainStream) error {
	if b.profile == 0 {
		return nil
	}
	t.period = b.profile + time.Second
	for crowd, name := range map[report.Crowd]string{report.Ordinary: "ordinary", report.Hostile: "hostile"} {
		group, inner := errgroup.WithContext(ctx)
		group.Go(func() error {
			_, err := t.measure(inner, b, scheduler, plain, crowd, uint64(b.rounds))
			return err
		})
		group.Go(func() error {
			if err := sleep(inner, settling); err != nil {
				return err
			}
			text, err := scheduler.get(inner, fmt.Sprintf("%s?seconds=%.0f", profilePath, b.profile.Seconds()))
			if err != nil {
				return fmt.Errorf("profile the scheduler with %v: %w", crowd, err)
			}
			return os.WriteFile(filepath.Join(b.out, "tenants-"+name+".pprof"), []byte(text), 0o644)
		})
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits for a duration, or until ctx is done.
func sleep(ctx context.Context, span time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(span):
		return nil
	}
}

// remove removes the tenants' pods. It returns an error if the scheduler has refused none of them:
// then nothing was measured.
func (t tenants) remove(ctx context.Context, b *bench, crowd report.Crowd) error {
	refused := 0
	for i := range t.count {
		pods := b.client.CoreV1().Pods(tenant(i))
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the pods of %s: %w", tenant(i), err)
		}
		for p := range list.Items {
			for _, condition := range list.Items[p].Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
					refused++
				}
			}
		}
		if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)},
			metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete the pods of %s: %w", tenant(i), err)
		}
	}
	if crowd != report.NoTenants && refused == 0 {
		return fmt.Errorf("the scheduler has refused no pod of the %d tenants", t.count)
	}
	return sleep(ctx, clearing)
}

// create creates a tenant's pods until ctx ends.
func (t tenants) create(
	ctx context.Context, b *bench, scheduler string, number int, crowd report.Crowd, seed uint64,
) error {
	rng := rand.New(rand.NewPCG(seed, uint64(number)))
	pods, worst := b.client.CoreV1().Pods(tenant(number)), hostile.Worst()
	tick := time.NewTicker(time.Duration(float64(time.Second) / t.rate))
	defer tick.Stop()
	var held []string
	for i := 0; ; i++ {
		pod := worst[(i+number)%len(worst)].Mutate(rng).Pod(fmt.Sprintf("pod-%d-%d-%05d", crowd, seed, i))
		pod.Namespace, pod.UID, pod.ResourceVersion, pod.Spec.SchedulerName = "", "", "", scheduler
		if crowd == report.Ordinary {
			withoutDevices(pod)
		}
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if held = append(held, pod.Name); err == nil && len(held) > heldByTenant {
			err = pods.Delete(ctx, held[0], metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			held = held[1:]
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", tenant(number), err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// withoutDevices makes a pod one of the same size that requests no device, and a node that no pod's
// end brings: one that lacks CPUs would be tried again whenever a pod is deleted.
func withoutDevices(pod *corev1.Pod) {
	if text, ok := pod.Annotations[deviceinfo.Annotation]; ok {
		pod.Annotations = map[string]string{"bench.example/as-long": text}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].Resources = corev1.ResourceRequirements{}
		}
	}
	pod.Spec.NodeSelector = map[string]string{"bench.example/machine": "none"}
}

// plainStream creates pods without devices, and replaces each that is bound.
type plainStream struct {
	bench     *bench
	scheduler string
	ready     chan string // names of pods that are bound
	bound     atomic.Int64
	created   atomic.Int64
}

// run creates pods until ctx ends.
func (s *plainStream) run(ctx context.Context) error {
	bound := cache.NewFilteredListWatchFromClient(s.bench.client.CoreV1().RESTClient(), "pods",
		metav1.NamespaceDefault, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		})
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: bound, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			s.bound.Add(1)
			select {
			case s.ready <- obj.(*corev1.Pod).Name:
			case <-ctx.Done():
			}
		}},
	})
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { informer.RunWithContext(inner); return nil })
	for range callers {
		group.Go(func() error {
			for range plainPods / callers {
				if err := s.create(inner); err != nil {
					return err
				}
			}
			for {
				select {
				case <-inner.Done():
					return nil
				case name := <-s.ready:
					if err := s.replace(inner, name); err != nil {
						return err
					}
				}
			}
		})
	}
	return group.Wait()
}

func (s *plainStream) create(ctx context.Context) error {
	pod := podOf(nothing, fmt.Sprintf("plain-%07d", s.created.Add(1)), s.scheduler)
	if _, err := s.bench.client.CreatePod(ctx, pod); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// replace removes a pod and creates another.
func (s *plainStream) replace(ctx context.Context, name string) error {
	err := s.bench.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return s.create(ctx)
}
