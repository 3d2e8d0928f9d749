// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
)

// crowd is how many pods the attacker creates before somebody else creates one.
const crowd = 10

// delays are attempts to have the pods of others wait.
func delays() []*Attempt {
	return []*Attempt{
		{
			ID: "delay-search", Who: Tenant,
			What: fmt.Sprintf("creates %d pods for which the scheduler would search for ever, before others "+
				"create theirs", crowd),
			Defence: Bounds, Alone: true, Sample: true,
			Want: everywhere(RefusedByScheduler, "--device-search-budget"), Try: delay(nil, hardToPlace),
			Off: Off{
				How: "a search may take a minute",
				Try: delay(nil, hardToPlace, "--device-search-budget=1m", "--device-cycle-budget=1m"),
			},
		},
		{
			ID: "delay-panic", Who: Tenant,
			What: fmt.Sprintf("creates %d pods, each with a request for which a vendor's scheduler plugin panics",
				crowd),
			Defence: Containment, Alone: true,
			Want: everywhere(RefusedByScheduler, "it fails for what this pod requests: panic"),
			Try:  delay(hazardous, requestEach("hazard/panic")),
			Off: Off{
				How: "the plugin panics in a goroutine of its own, where the scheduler cannot recover",
				Try: delay(hazardous, requestEach("hazard/crash")),
			},
		},
	}
}

// hazardous is a plugin that panics for what pods request.
var hazardous = map[string]string{"hazard.so": "testdata/hazard"}

// requestEach returns a shape of pods that request a GPU and each another quantity of a resource
// that only a plugin knows.
func requestEach(name string) func(pod *corev1.Pod, number int) {
	return func(pod *corev1.Pod, number int) {
		limits("main", 1)(pod)
		kube.SetRequests(pod, fmt.Sprintf("%q:%d", name, number+1))
	}
}

// delay creates pods of some shape for a scheduler of the attempt's own, and then pods of somebody
// else. It succeeds if these wait; if not, the scheduler says what is wrong with the attacker's.
func delay(plugins map[string]string, shape func(pod *corev1.Pod, number int), args ...string) Try {
	return func(ctx context.Context, s *Stage) (got Got, err error) {
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		scheduler, err := s.startScheduler(ctx, plugins, args...)
		if err != nil {
			return Got{}, err
		}
		defer func() { err = errors.Join(err, scheduler.Kill9(context.WithoutCancel(ctx))) }()
		var pods []*corev1.Pod
		for i := range crowd {
			pod := s.forOwnScheduler(s.pod(fmt.Sprintf("hard-%d", i), 0))
			shape(pod, i)
			created, err := tenant.CreatePod(ctx, pod)
			if err != nil {
				return Got{}, err
			}
			pods = append(pods, created)
		}
		if got, err := s.holdsUp(ctx, scheduler); err != nil || got.Outcome != NoEffect {
			return got, err
		}
		_, got, err = s.awaitState(ctx, pods[0])
		return got, err
	}
}

// hardToPlace gives a pod one container more than the node has GPUs, each with more than half of
// the memory of one: no count of devices or of memory shows that they do not fit. Each pod requests
// something else, so that no answer is known.
func hardToPlace(pod *corev1.Pod, number int) {
	var texts []string
	pod.Spec.Containers = nil
	for i := range devices[scheduled] + 1 {
		name := fmt.Sprintf("c%d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, idleContainer(name))
		texts = append(texts, fmt.Sprintf(`%q:{"requests":{"gpu/a/memory":%d}}`, name, 41<<30+100*number+i))
	}
	pod.Annotations = map[string]string{
		deviceinfo.Annotation: `{"runningcontainer":{` + strings.Join(texts, ",") + `}}`,
	}
}
