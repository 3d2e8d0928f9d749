// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// PodSet is the pods of a namespace, by name.
type PodSet map[string]*corev1.Pod

// Follow keeps the set up to date with the pods of a namespace, and calls until with each state,
// until it returns true or an error.
func (c PodSet) Follow(ctx context.Context, client *kube.Client, namespace string, until func() (bool, error)) error {
	pods := client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	clear(c)
	for _, pod := range list.Items {
		c[pod.Name] = &pod
	}
	if done, err := until(); done || err != nil {
		return err
	}
	changes := &cache.ListWatch{WatchFuncWithContext: pods.Watch}
	_, err = watchtools.Until(ctx, list.ResourceVersion, changes, func(event watch.Event) (bool, error) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return false, fmt.Errorf("the watch says %v", event.Object)
		}
		if event.Type == watch.Deleted {
			delete(c, pod.Name)
		} else {
			c[pod.Name] = pod
		}
		return until()
	})
	return err
}

// Those returns the pods for which is holds, by name.
func (c PodSet) Those(is func(*corev1.Pod) bool) []*corev1.Pod {
	var found []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if is(c[name]) {
			found = append(found, c[name])
		}
	}
	return found
}

// Twice returns an error that names a device which two pods were allocated at the same time.
func (c PodSet) Twice() error {
	holders := map[string]string{}
	for _, pod := range c {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			seen, err := new(observe.Observer).Choice(pod, container.Name)
			if err != nil {
				return err
			}
			for _, id := range seen.Chosen {
				device := pod.Spec.NodeName + " " + id
				if holder, held := holders[device]; held && holder != pod.Name {
					return fmt.Errorf("the pods %s and %s were both given %s", holder, pod.Name, device)
				}
				holders[device] = pod.Name
			}
		}
	}
	return nil
}

// String reports how many pods are in which phase, those with a node and those without apart.
func (c PodSet) String() string {
	phases := map[string]int{}
	for _, pod := range c {
		phase := string(pod.Status.Phase)
		if pod.DeletionTimestamp != nil {
			phase = "Terminating"
		}
		phases[fmt.Sprintf("%s, scheduled: %t", phase, pod.Spec.NodeName != "")]++
	}
	return fmt.Sprint(phases)
}

// WatchForDoubles follows every write of a namespace's pods until end is called, which returns an
// error if two pods were allocated a device at the same time.
func WatchForDoubles(ctx context.Context, client *kube.Client, namespace string) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan error, 1)
	go func() {
		seen := PodSet{}
		err := seen.Follow(ctx, client, namespace, func() (bool, error) { return false, seen.Twice() })
		if ctx.Err() != nil {
			err = nil
		}
		found <- err
	}()
	return func() error {
		cancel()
		if err := <-found; err != nil {
			return err
		}
		now := PodSet{} // the watch may be late
		return now.Follow(context.WithoutCancel(ctx), client, namespace,
			func() (bool, error) { return true, now.Twice() })
	}
}
