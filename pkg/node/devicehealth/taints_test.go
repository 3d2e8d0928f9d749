// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// tainting is what taints have of this package, in addition to a machine's other parts.
type tainting struct {
	*machine
	annotation string
	taints     *Taints
	stop       func()
}

// taintStory runs a story about taints on a machine.
func taintStory(t *testing.T, story func(*tainting)) {
	run(t, Rule{Policy: Ignore}, nil, func(m *machine) {
		s := &tainting{machine: m}
		s.start()
		defer func() { s.stop() }()
		story(s)
	})
}

func (s *tainting) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.taints = NewTaints(s)
	s.taints.Set(ctx, s.annotation)
	controller := NewTaintController(TaintOptions{
		Taints: s.taints, Grants: s.granted, Pods: s.pods, Events: s, Metrics: s,
	}, s.client)
	var running sync.WaitGroup
	running.Go(func() { controller.Run(ctx) })
	s.stop = func() { cancel(); running.Wait() }
	synctest.Wait()
}

// restart starts it again, as kubecri is.
func (s *tainting) restart() {
	s.stop()
	s.start()
}

// taint gives GPUs taints, in place of those that there are, as administrators do now.
func (s *tainting) taint(taints ...deviceinfo.DeviceTaint) {
	value, err := deviceinfo.EncodeDeviceTaints(taints)
	if err != nil {
		s.t.Fatal(err)
	}
	s.annotation = value
	s.taints.Set(s.t.Context(), value)
}

func maintenance(gpu string, effect corev1.TaintEffect) deviceinfo.DeviceTaint {
	return deviceinfo.DeviceTaint{Device: "gpu/" + gpu, Key: "maintenance", Effect: effect, TimeAdded: time.Now().UTC()}
}

// tolerates gives a pod a toleration of maintenance, for ever or for so many seconds.
func (s *tainting) tolerates(id string, seconds *int64) {
	s.pods.change(func(all map[string]pods.Pod) {
		pod := all[id]
		pod.Tolerations = []corev1.Toleration{{Key: "maintenance", Operator: "Exists", TolerationSeconds: seconds}}
		all[id] = pod
	})
}

func (s *tainting) expect(what string, want ...string) {
	s.t.Helper()
	got := s.inspect()
	if len(got)+len(want) > 0 {
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestNoExecuteEvictsTheHoldersThatDoNotTolerateIt(t *testing.T) {
	taintStory(t, func(s *tainting) {
		s.tolerates("1", nil)
		s.taint(maintenance("0", corev1.TaintEffectNoSchedule))
		s.expect("NoSchedule", "node Normal: gpu/0 (maintenance:NoSchedule) is tainted")
		s.taint(maintenance("0", corev1.TaintEffectNoExecute), maintenance("1", corev1.TaintEffectNoExecute),
			maintenance("3", corev1.TaintEffectNoExecute))
		s.expect("NoExecute", "evicted 0", "evicted 3",
			"node Normal: gpu/0 (maintenance:NoExecute), gpu/1 (maintenance:NoExecute), gpu/3 (maintenance:NoExecute) "+
				"are tainted",
			"node Normal: gpu/0 (maintenance:NoSchedule) is no longer tainted",
			`pod 0 DeviceTaintEvicted: the pod is evicted: device resource/group/gpu/0, which container "main" holds, `+
				`has the taint maintenance:NoExecute, which the pod does not tolerate`,
			`pod 3 DeviceTaintEvicted: the pod is evicted: device resource/group/switch/0/gpu/3, which container `+
				`"main" holds, has the taint maintenance:NoExecute, which the pod does not tolerate`)
		s.restart()
		s.expect("a restart changes nothing")
	})
}

func TestTheSecondsOfATolerationCountFromTheTaint(t *testing.T) {
	taintStory(t, func(s *tainting) {
		s.tolerates("0", ptr.To[int64](60))
		s.tolerates("1", ptr.To[int64](60))
		s.pods.change(func(all map[string]pods.Pod) { // it starts in 30 seconds
			pod := all["1"]
			pod.Started = time.Now().Add(30 * time.Second)
			all["1"] = pod
		})
		event := func(id string, after time.Duration) string {
			return fmt.Sprintf(`pod %s DeviceTainted: device resource/group/gpu/%s, which container "main" holds, `+
				`has the taint maintenance:NoExecute, which the pod tolerates for a time; the pod is evicted if it is `+
				`so at %s`,
				id, id, time.Now().Add(after).UTC().Format(time.RFC3339))
		}
		s.taint(maintenance("0", corev1.TaintEffectNoExecute), maintenance("1", corev1.TaintEffectNoExecute))
		s.expect("at first", "node Normal: gpu/0 (maintenance:NoExecute), gpu/1 (maintenance:NoExecute) are tainted",
			event("0", time.Minute), event("1", 90*time.Second))
		time.Sleep(40 * time.Second)
		s.restart()
		s.expect("a restart keeps the times", event("0", 20*time.Second), event("1", 50*time.Second))
		time.Sleep(19 * time.Second)
		s.expect("before a minute is over")
		time.Sleep(time.Second)
		s.expect("after a minute", "evicted 0",
			`pod 0 DeviceTaintEvicted: the pod is evicted: device resource/group/gpu/0, which container "main" holds, `+
				`has the taint maintenance:NoExecute, which the pod tolerates for a time`)
		s.taint()
		s.expect("the taint is removed in time",
			"node Normal: gpu/0 (maintenance:NoExecute), gpu/1 (maintenance:NoExecute) are no longer tainted")
		time.Sleep(time.Hour)
		s.expect("and the other pod stays")
	})
}

func TestABudgetIsRespectedWhenATaintEvicts(t *testing.T) {
	taintStory(t, func(s *tainting) {
		s.budget.Store(true)
		s.taint(maintenance("2", corev1.TaintEffectNoExecute))
		s.expect("held back", "budget holds 2", "node Normal: gpu/2 (maintenance:NoExecute) is tainted",
			fmt.Sprintf("pod 2 DeviceTaintBlocked: the pod cannot be evicted yet: %v", errBudget))
		time.Sleep(3 * time.Second)
		s.expect("again after 1 and 2 seconds", "budget holds 2", "budget holds 2")
		s.budget.Store(false)
		time.Sleep(4 * time.Second)
		s.expect("when the budget allows it", "evicted 2",
			`pod 2 DeviceTaintEvicted: the pod is evicted: device resource/group/gpu/2, which container "main" holds, `+
				`has the taint maintenance:NoExecute, which the pod does not tolerate`)
	})
}

func TestTaintsThatCannotBeReadEvictNoPod(t *testing.T) {
	taintStory(t, func(s *tainting) {
		s.taints.Set(s.t.Context(), `{"version":1,"taints":[{"device":"gpu/0","key":"k","effect":"NoWay"}]}`)
		s.expect("unreadable", `node Warning: all devices of the node have the taint `+
			`kubedevice.io/unreadable-taints:NoSchedule: annotation KubeDevice/DeviceTaints: taints[0].effect: `+
			`"NoWay" is no effect; use NoSchedule or NoExecute`)
		// Without a time, it counts from when it is seen.
		taint := maintenance("0", corev1.TaintEffectNoExecute)
		taint.TimeAdded = time.Time{}
		s.tolerates("0", ptr.To[int64](10))
		s.taint(taint)
		if said := s.inspect(); len(said) != 2 {
			t.Errorf("said %q", said)
		}
		time.Sleep(10 * time.Second)
		if said := s.inspect(); len(said) != 2 || said[0] != "evicted 0" {
			t.Errorf("after ten seconds, said %q", said)
		}
	})
}
