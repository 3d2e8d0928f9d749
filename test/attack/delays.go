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

// crowd is how many pods the attacker creates before another user creates one.
const crowd = 10

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

// crowdScheduler creates pods for a scheduler of the attempt's own, and then pods of another user.
// The attacker's are hard to place, or each requests another quantity of a resource. It succeeds if
// the others wait; if not, the scheduler says what is wrong with the attacker's.
func crowdScheduler(ctx context.Context, p *trial, arguments struct {
	Request   string   `json:"request"`
	Arguments []string `json:"arguments"`
}) (got Got, err error) {
	shape, plugins := hardToPlace, map[string]string(nil)
	if arguments.Request != "" {
		shape, plugins = requestEach(arguments.Request), hazardous
	}
	tenant, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	scheduler, err := p.startScheduler(ctx, plugins, arguments.Arguments...)
	if err != nil {
		return Got{}, err
	}
	defer func() { err = errors.Join(err, scheduler.Kill9(context.WithoutCancel(ctx))) }()
	var pods []*corev1.Pod
	for i := range crowd {
		pod := p.forOwnScheduler(p.pod(fmt.Sprintf("hard-%d", i), 0))
		shape(pod, i)
		created, err := tenant.CreatePod(ctx, pod)
		if err != nil {
			return Got{}, err
		}
		pods = append(pods, created)
	}
	if got, err := p.holdsUp(ctx, scheduler); err != nil || got.Outcome != NoEffect {
		return got, err
	}
	_, got, err = p.awaitState(ctx, pods[0])
	return got, err
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
