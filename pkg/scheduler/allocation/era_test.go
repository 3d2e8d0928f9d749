// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAnotherEraBeginsWhenAPluginTranslatesOtherwise(t *testing.T) {
	plugin := &translator{fake: gpus()}
	s := set(t, clock.RealClock{}, plugin, pure{gpus()})
	before, ok := s.Era()
	if !ok {
		t.Fatal("answers that may be remembered have no era")
	}
	plugin.revision.Add(1)
	nodeLike(t, s, "n", 1, 0)
	if after, ok := s.Era(); !ok || after == before {
		t.Errorf("era %d, %t, as before", after, ok)
	}
	if _, ok := set(t, clock.RealClock{}, plugin, gpus()).Era(); ok {
		t.Error("answers that may not be remembered have an era")
	}
}

// patient has pods wait for two devices, and content with one of each node's own.
type patient struct{ *translator }

func (p patient) AfterWait() devicescheduler.DeviceScheduler { return gpus() }

func TestAPodThatHasWaitedIsServedByAnotherSchedulerAndHasAnotherKey(t *testing.T) {
	never := &fake{name: "p", groups: true, fit: func(*types.NodeInfo, *types.PodInfo) (bool, reasons, float64) {
		return false, reasons{because("waits for better ones")}, 0
	}}
	s := set(t, clock.RealClock{}, patient{&translator{fake: never}})
	if !s.Patient() || set(t, clock.RealClock{}, never).Patient() {
		t.Error("who is patient is not known")
	}
	keys := map[request.Key]bool{}
	for range 2 { // the second answers are cached
		for _, waited := range []bool{false, true} {
			request := requestFor(1)
			request.Waited = waited
			keys[request.Key()] = true
			verdict, err := s.Fit(t.Context(), nodeLike(t, s, "n", 2, 0), request)
			if err != nil || verdict.Fits != waited {
				t.Errorf("a pod for which it is %v that it has waited: %+v, %v", waited, verdict, err)
			}
		}
	}
	if len(keys) != 2 {
		t.Error("whether a pod has waited is no part of its key")
	}
}
