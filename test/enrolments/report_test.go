// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolments

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestOnlyAKubeletThatWasRestartedExplainsAPodThatFailed(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	starts := []time.Time{at(0), at(100), at(200)}
	for name, test := range map[string]struct {
		reason    string
		failed    int
		ran       int // when its container ran, for a second
		byKubelet bool
	}{
		"no container ran at the kubelet's start":  {admissionError, 110, 90, true},
		"the container ran at the kubelet's start": {admissionError, 110, 100, false},
		"the kubelet had been started before":      {admissionError, 170, 90, false},
		"it failed for another reason":             {"Evicted", 110, 90, false},
		"its start was cut off":                    {"StartError: context canceled", 110, 90, true},
		"it did not start":                         {"StartError: no such file", 110, 90, false},
		"it ended":                                 {"Error: context canceled", 110, 90, false},
	} {
		f := failure{pod: &corev1.Pod{Status: corev1.PodStatus{Reason: test.reason}}, at: at(test.failed)}
		if reason, message, ok := strings.Cut(test.reason, ": "); ok { // of the container
			f.pod.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message},
			}}}}
		}
		said, byKubelet := explain(f, starts, func(_ string, when time.Time) bool { return when.Equal(at(test.ran)) })
		if byKubelet != test.byKubelet {
			t.Errorf("%s: %s: %t", name, said, byKubelet)
		}
	}
}

func TestAnyFindingIsAFailure(t *testing.T) {
	good := Result{ByKubelet: []string{"pod a"}}
	if err := good.failure(); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]Result{
		"shared devices":   {SharedDevices: []string{"x"}},
		"ended containers": {EndedContainers: []string{"x"}},
		"failed pods":      {FailedPods: []string{"x"}},
		"refused":          {Refused: []string{"x"}},
		"not ready":        {NotReady: []string{"x"}},
		"changed files":    {ChangedFiles: []string{"x"}},
	} {
		if err := bad.failure(); err == nil || err.Error() != name+": x" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
