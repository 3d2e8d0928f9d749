// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// auditor knows who holds what, from the API server alone: it sees each write of a pod, in the
// order of the writes.
type auditor struct {
	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod // those that exist
	holders map[string]*corev1.Pod    // by device
	bound   int                       // all that ever were
	twice   []string                  // devices that were allocated to a pod while another one had them
	without []string                  // pods that were bound without what their limits request
	ended   bool                      // the watch has, so that the auditor knows nothing more
}

// audit returns an auditor of all pods that are created from now on.
func (c *cluster) audit() *auditor {
	c.Helper()
	now, err := c.CoreV1().Pods(metav1.NamespaceDefault).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	// The server ends the watch of a reader that is slow for a moment: it is taken up where it
	// ended.
	pods := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", metav1.NamespaceDefault, fields.Everything())
	writes, err := watchtools.NewRetryWatcherWithContext(c.Context(), now.ResourceVersion, pods)
	if err != nil {
		c.Fatal(err)
	}
	a := &auditor{pods: map[types.UID]*corev1.Pod{}, holders: map[string]*corev1.Pod{}}
	var following sync.WaitGroup
	following.Go(func() {
		for event := range writes.ResultChan() {
			a.inspectRaw(event)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ended = true
	})
	c.Cleanup(func() {
		writes.Stop()
		following.Wait()
	})
	return a
}

func (a *auditor) inspectRaw(event watch.Event) {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return // the watch ends with this
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.pods[pod.UID]
	if event.Type == watch.Deleted {
		delete(a.pods, pod.UID)
		for device, holder := range a.holders {
			if holder.UID == pod.UID {
				delete(a.holders, device)
			}
		}
		return
	}
	a.pods[pod.UID] = pod
	if pod.Spec.NodeName == "" || before != nil && before.Spec.NodeName != "" {
		return
	}
	a.bound++
	ids, err := gpusOf(pod)
	if err != nil {
		a.without = append(a.without, err.Error())
	}
	for _, device := range ids {
		if holder := a.holders[device]; holder != nil {
			a.twice = append(a.twice,
				fmt.Sprintf("%s was allocated to %s while %s had it", device, pod.Name, holder.Name))
		}
		a.holders[device] = pod
	}
}

// those returns the pods that exist, with a node or without.
func (a *auditor) those(bound bool) []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*corev1.Pod
	for _, pod := range a.pods {
		if (pod.Spec.NodeName != "") == bound {
			list = append(list, pod)
		}
	}
	return list
}

// everBound returns how many pods have been bound so far.
func (a *auditor) everBound() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bound
}

// verdict is an error when the auditor has found something, or could not read.
func (a *auditor) verdict() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended:
		return fmt.Errorf("the watch of the pods has ended")
	case len(a.twice) > 0:
		return fmt.Errorf("%d devices were allocated twice:\n%s", len(a.twice), strings.Join(a.twice, "\n"))
	case len(a.without) > 0:
		return fmt.Errorf("%d pods were bound without what they request:\n%s", len(a.without),
			strings.Join(a.without, "\n"))
	}
	return nil
}
