// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// scheduler gives configured answers, and keeps the requests.
type scheduler struct {
	mu        sync.Mutex
	away      error // why connections to it fail
	refuses   error
	connected int // connections that are open
	atOnce    int // the most of them at a time
	queries   []string
}

func (s *scheduler) connect(context.Context) (Scheduler, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, nil, s.away
	}
	s.connected++
	s.atOnce = max(s.atOnce, s.connected)
	return s, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.connected--
	}, nil
}

func (s *scheduler) Query(_ context.Context, method, path string, in, out any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(in)
	s.queries = append(s.queries, method+" "+path+" "+string(text))
	if err != nil || s.refuses != nil {
		return errors.Join(err, s.refuses)
	}
	switch out := out.(type) {
	case *schedulerapi.Why:
		out.Nodes = 2
	case *schedulerapi.Placements:
		out.Fits = true
	}
	return nil
}

// query returns the answer to a question of the page.
func (f *fixture) query(query string) (a answer) {
	f.t.Helper()
	response, text := f.get(f.base+query, f.withKey()...)
	if err := json.Unmarshal([]byte(text), &a); err != nil || response.StatusCode != http.StatusOK {
		f.t.Fatalf("%s: %s: %v: %s", query, response.Status, err, text)
	}
	return a
}

func TestQuestionsAreSentToTheScheduler(t *testing.T) {
	f := newFixture(t)
	if a := f.query("/why?namespace=default&name=big"); a.Why == nil || a.Why.Nodes != 2 || a.Problem != "" {
		t.Errorf("the answer is %+v", a)
	}
	a := f.query("/whatif?namespace=default&name=big&change=without:research/a&change=like:n:1&change=cordon:n&" +
		"change=cordon:n/gpugrp0/1/gpu/g")
	if a.Placements == nil || !a.Placements.Fits || a.Why != nil || a.Problem != "" {
		t.Errorf("the answer is %+v", a)
	}
	want := []string{
		`POST /devices/v1alpha1/why {"pod":{"namespace":"default","name":"big"}}`,
		`POST /devices/v1alpha1/whatif {"pod":{"namespace":"default","name":"big"},"namespace":"",` +
			`"template":{"metadata":{},"spec":{"containers":null}},"changes":[` +
			`{"without":{"namespace":"research","name":"a"}},{"withNodeLike":"n:1"},{"cordon":"n"},` +
			`{"cordon":"n/gpugrp0/1/gpu/g"}]}`,
	}
	if diff := cmp.Diff(want, f.scheduler.queries); diff != "" {
		t.Errorf("it is queried (-want +got):\n%s", diff)
	}
	if f.scheduler.connected != 0 {
		t.Errorf("%d connections are left", f.scheduler.connected)
	}
}

func TestWithoutASchedulerTheAnswerHasTheReason(t *testing.T) {
	f := newFixture(t)
	f.scheduler.refuses = errors.New("forbidden")
	if a := f.query("/why?namespace=default&name=big"); a.Why != nil || a.Problem != "forbidden" {
		t.Errorf("the answer is %+v", a)
	}
	f.scheduler.away = errors.New("no scheduler publishes where it answers")
	if a := f.query("/whatif?namespace=default&name=big"); a.Placements != nil ||
		a.Problem != f.scheduler.away.Error() {
		t.Errorf("the answer is %+v", a)
	}
}

func TestMalformedQuestionsAreRefused(t *testing.T) {
	f := newFixture(t)
	for what, path := range map[string]string{
		"no pod":              "/why?namespace=default",
		"no namespace":        "/whatif?name=p",
		"an unknown change":   "/whatif?namespace=default&name=p&change=with:x",
		"a pod without space": "/whatif?namespace=default&name=p&change=without:x",
		"nothing to cordon":   "/whatif?namespace=default&name=p&change=cordon:",
		"like nothing":        "/whatif?namespace=default&name=p&change=like:",
	} {
		f.want(what, http.StatusBadRequest, f.base+path, f.withKey()...)
	}
	if len(f.scheduler.queries) > 0 {
		t.Errorf("the scheduler is queried %q", f.scheduler.queries)
	}
}

func TestQuestionsAreSentOneAtATime(t *testing.T) {
	f := newFixture(t)
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() { f.get(f.base+"/why?namespace=default&name=big", f.withKey()...) })
	}
	asking.Wait()
	if len(f.scheduler.queries) != 8 || f.scheduler.atOnce != 1 {
		t.Errorf("%d questions were sent, %d at a time", len(f.scheduler.queries), f.scheduler.atOnce)
	}
}
