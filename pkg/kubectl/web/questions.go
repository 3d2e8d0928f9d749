// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// queryTimeout is how long a question may take, the way to the scheduler included.
const queryTimeout = 30 * time.Second

// Scheduler answers questions about placement, with the user's rights. Package
// pkg/kubectl/scheduler has the client that does.
type Scheduler interface {
	Query(ctx context.Context, method, path string, in, out any) error
}

// Connect connects to the scheduler that leads. The caller disconnects.
type Connect func(ctx context.Context) (to Scheduler, disconnect func(), err error)

// questions queries the scheduler for the page, one question after another. Each has a
// connection of its own: the scheduler that leads may be another one by the next.
type questions struct {
	connect Connect
	slot    chan struct{} // has room for one
}

func newQuestions(connect Connect) *questions {
	return &questions{connect: connect, slot: make(chan struct{}, 1)}
}

// answer is what the scheduler says, or in words why it says nothing.
type answer struct {
	Why        *schedulerapi.Why        `json:"why,omitempty"`
	Placements *schedulerapi.Placements `json:"placements,omitempty"`
	Problem    string                   `json:"problem,omitempty"`
}

// why sends why a pod waits (?namespace=NAMESPACE&name=NAME).
func (q *questions) why(w http.ResponseWriter, r *http.Request) {
	pod, ok := requestedPod(w, r)
	if !ok {
		return
	}
	var a answer
	a.Why = &schedulerapi.Why{}
	if err := q.query(r.Context(), schedulerapi.WhyPath, schedulerapi.WhyRequest{Pod: pod}, a.Why); err != nil {
		a = answer{Problem: err.Error()}
	}
	send(w, &a)
}

// whatIf sends where a pod that waits would go after changes (&change=…, in their order).
func (q *questions) whatIf(w http.ResponseWriter, r *http.Request) {
	pod, ok := requestedPod(w, r)
	if !ok {
		return
	}
	request := schedulerapi.WhatIfRequest{Pod: &pod}
	for _, text := range r.URL.Query()["change"] {
		change, err := readChange(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request.Changes = append(request.Changes, change)
	}
	var a answer
	a.Placements = &schedulerapi.Placements{}
	if err := q.query(r.Context(), schedulerapi.WhatIfPath, request, a.Placements); err != nil {
		a = answer{Problem: err.Error()}
	}
	send(w, &a)
}

// readChange reads a change: without:NAMESPACE/NAME, like:NODE, cordon:NODE or cordon:NODE/DEVICE.
func readChange(text string) (change schedulerapi.Change, err error) {
	kind, what, _ := strings.Cut(text, ":")
	namespace, name, named := strings.Cut(what, "/")
	switch {
	case kind == "without" && named && namespace != "" && name != "":
		change.Without = &schedulerapi.PodName{Namespace: namespace, Name: name}
	case kind == "like" && what != "":
		change.WithNodeLike = what
	case kind == "cordon" && what != "":
		change.Cordon = what
	default:
		err = fmt.Errorf("%q is no change: say without:NAMESPACE/NAME, like:NODE, cordon:NODE or cordon:NODE/DEVICE",
			text)
	}
	return change, err
}

// requestedPod returns the pod that a question is about, or refuses the question.
func requestedPod(w http.ResponseWriter, r *http.Request) (pod schedulerapi.PodName, ok bool) {
	query := r.URL.Query()
	pod = schedulerapi.PodName{Namespace: query.Get("namespace"), Name: query.Get("name")}
	if pod.Namespace == "" || pod.Name == "" {
		http.Error(w, "a question about what? Say namespace=NAMESPACE and name=NAME.", http.StatusBadRequest)
		return pod, false
	}
	return pod, true
}

// query sends one question to the scheduler.
func (q *questions) query(ctx context.Context, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	select {
	case q.slot <- struct{}{}:
		defer func() { <-q.slot }()
	case <-ctx.Done():
		return fmt.Errorf("the questions before this one took longer than %v", queryTimeout)
	}
	scheduler, disconnect, err := q.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	return scheduler.Query(ctx, http.MethodPost, path, in, out)
}

// send sends JSON.
func send(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(what) //nolint:errcheck // the browser is gone
}
