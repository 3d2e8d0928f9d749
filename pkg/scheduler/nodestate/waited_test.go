// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	"k8s.io/klog/v2"

	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// patient is a plugin that has pods wait.
type patient struct{ *gpus }

func (p patient) AfterWait() devicescheduler.DeviceScheduler { return p.gpus }

func TestAPodHasWaitedSoLongAfterItsFirstAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		longest time.Duration
		plugin  devicescheduler.DeviceScheduler
		attempt bool
		after   time.Duration
		want    bool
	}{
		"a pod that was never attempted":             {time.Minute, patient{&gpus{}}, false, time.Hour, false},
		"a moment too early":                         {time.Minute, patient{&gpus{}}, true, time.Minute - 1, false},
		"just then":                                  {time.Minute, patient{&gpus{}}, true, time.Minute, true},
		"a scheduler that lets pods wait for ever":   {0, patient{&gpus{}}, true, time.Hour, false},
		"plugins of which none has pods wait for it": {time.Minute, &gpus{}, true, time.Hour, false},
		"a second attempt that does not restart it":  {time.Hour, patient{&gpus{}}, true, 2 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.set = allocation.New(klog.Background(), nil, allocation.Named{File: "gpus.so", Plugin: test.plugin})
			f.cache = New(f.set, corelisters.NewNodeLister(f.indexer), f.clock)
			if f.set.Patient() {
				f.cache.Requests.LimitWait(test.longest)
			}
			f.node("n", "n-1", "A")
			pod := f.pod("p", 1)
			before, err := f.cache.Requests.Read(pod)
			if err != nil || before.Waited {
				t.Fatalf("before the first attempt: %+v, %v", before, err)
			}
			if test.attempt {
				f.cache.Requests.Attempt(pod)
			}
			f.clock.Step(test.after)
			if test.attempt {
				f.cache.Requests.Attempt(pod)
			}
			after, err := f.cache.Requests.Read(pod)
			if err != nil || after.Waited != test.want {
				t.Errorf("it is %v that the pod has waited, want %v; error %v", after.Waited, test.want, err)
			}
		})
	}
}
