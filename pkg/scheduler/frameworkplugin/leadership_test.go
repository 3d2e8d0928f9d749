// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

func TestRoundsAreMadeOnlyWhileTheSchedulerLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Shared{clock: clock.RealClock{}}
		s.background.init(t.Context())
		defer s.Close()
		rounds := 0
		s.runWhileLeading(time.Minute, func(context.Context) { rounds++ })
		after := func(pause time.Duration) int {
			time.Sleep(pause) // in the time of synctest
			synctest.Wait()
			return rounds
		}
		if got := after(5 * time.Minute); got != 0 {
			t.Errorf("a standby made %d rounds", got)
		}
		s.noteLeading()
		if got := after(3 * time.Minute); got != 3 {
			t.Errorf("%d rounds in three minutes, want 3", got)
		}
		began := *s.began.Load()
		if s.noteLeading(); !s.began.Load().Equal(began) {
			t.Error("it begins to lead again with each pod")
		}
		s.Close()
		if got := after(time.Hour); got != 3 {
			t.Errorf("%d rounds, some after the end", got)
		}
	})
}

func TestAPodThatWaitedForALeaderLearnsWhy(t *testing.T) {
	for name, test := range map[string]struct {
		scheduler  string
		before     time.Duration // how long before this scheduler led it was created
		conditions []v1.PodConditionType
		gpus       int64
		want       string // in the event; "" for none
	}{
		"a device pod that waited":           {SchedulerName, 90 * time.Second, nil, 1, "the pod waited 1m30s, as no"},
		"a plain pod that waited":            {SchedulerName, time.Hour, nil, 0, "the pod waited 1h0m0s, as no"},
		"one with another condition":         {SchedulerName, time.Hour, []v1.PodConditionType{"X"}, 1, "the pod wait"},
		"one that waited as for any leader":  {SchedulerName, 10 * time.Second, nil, 1, ""},
		"one that came while it led":         {SchedulerName, -time.Minute, nil, 1, ""},
		"one that was tried before":          {SchedulerName, time.Hour, []v1.PodConditionType{v1.PodScheduled}, 1, ""},
		"one that any scheduler could serve": {v1.DefaultSchedulerName, time.Hour, nil, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []*v1.Node{newNode("n", "A", "B")})
			f.fits("n") // it leads from now on
			pod := newPod("p", test.gpus)
			pod.Spec.SchedulerName = test.scheduler
			pod.CreationTimestamp = metav1.NewTime(f.clock.Now().Add(-test.before))
			for _, kind := range test.conditions {
				pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: kind})
			}
			f.clock.Step(time.Minute) // it is tried later, and waited for others by then
			f.fit(pod, "n")
			if test.want == "" {
				if len(f.events.Events) != 0 {
					t.Errorf("event %q", <-f.events.Events)
				}
				return
			}
			if len(f.events.Events) != 1 {
				t.Fatalf("%d events, want one", len(f.events.Events))
			}
			if event := <-f.events.Events; !strings.HasPrefix(event, "Normal WaitedForScheduler "+test.want) {
				t.Errorf("event %q, want it to begin with %q", event, test.want)
			}
		})
	}
}
