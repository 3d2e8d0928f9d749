// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// podSet is the pods of a namespace, by name.
type podSet map[string]*corev1.Pod

// awaitPods waits until is holds for the pods of a namespace, and returns them as they are then.
// what completes the sentence "wait for the pods ...".
func awaitPods(ctx context.Context, t *testing.T, namespace, what string, is func(podSet) bool) podSet {
	t.Helper()
	seen := podSet{}
	err := follow(ctx, namespace, seen, func() (bool, error) { return is(seen), nil })
	if err != nil {
		t.Fatalf("wait for the pods %s: %v; they are %s", what, err, seen)
	}
	return seen
}

// follow keeps seen up to date with the pods of a namespace, and calls until with each state, until
// it returns true or an error.
func follow(ctx context.Context, namespace string, seen podSet, until func() (bool, error)) error {
	pods := shared.Client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	clear(seen)
	for _, pod := range list.Items {
		seen[pod.Name] = &pod
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
			delete(seen, pod.Name)
		} else {
			seen[pod.Name] = pod
		}
		return until()
	})
	return err
}

// those returns the pods for which is holds, by name.
func (c podSet) those(is func(*corev1.Pod) bool) []*corev1.Pod {
	var found []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if is(c[name]) {
			found = append(found, c[name])
		}
	}
	return found
}

// twice returns an error that names a device which two pods were given at the same time.
func (c podSet) twice() error {
	holders := map[string]string{}
	for _, pod := range c {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			seen, err := observer.Choice(pod, container.Name)
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
func (c podSet) String() string {
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
