// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readapi serves the scheduler's read API, which package schedulerapi describes: devices
// with their holders, pods with their allocations and verdicts, and the scheduler that answers. It
// publishes its address, and the fingerprint of its public key, in a Lease.
//
// The package authorizes and limits all requests under schedulerapi.Prefix, including questions
// about placement, which another package answers.
package readapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// Source provides the data of the API. Its methods are safe for concurrent use, and read the
// current state of the cluster. They return the context's error when it ends.
type Source interface {
	// Nodes calls yield with the nodes after a name in the order of their names, or with the one
	// called name, until yield returns false.
	Nodes(ctx context.Context, name, after string, yield func(schedulerapi.Node) bool) error
	// Pods calls yield with pods that hold devices or wait for some, in the order of their keys,
	// until yield returns false.
	Pods(ctx context.Context, query PodQuery, yield func(schedulerapi.Pod) bool) error
}

// PodQuery selects pods. An empty field selects all.
type PodQuery struct {
	Namespace, Name, Node string
	// After is the key of the last pod before the selected ones.
	After string
}

// key orders pods.
func key(namespace, name string) string { return namespace + "/" + name }

// Self is this scheduler.
type Self interface {
	// Server describes it.
	Server() schedulerapi.Server
}

// Options configure a handler.
type Options struct {
	Source Source
	// Self is this scheduler.
	Self Self
	// Placement answers questions about placement; nil if this scheduler does not.
	Placement http.Handler
}

// NewHandler returns the handler of the API. It limits each user; the caller has authorized the
// request.
func NewHandler(options Options) http.Handler {
	h := &handler{options}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, problem(http.StatusNotFound, metav1.StatusReasonNotFound, "there is no %s; %s describes the API",
			r.URL.Path, schedulerapi.OpenAPIPath))
	})
	mux.Handle(schedulerapi.ServerPath, onlyMethod(http.MethodGet, h.server))
	mux.Handle(schedulerapi.NodesPath, onlyMethod(http.MethodGet, h.nodes))
	mux.Handle(schedulerapi.PodsPath, onlyMethod(http.MethodGet, h.pods))
	mux.Handle(schedulerapi.OpenAPIPath, onlyMethod(http.MethodGet, h.openAPI))
	for _, path := range []string{schedulerapi.WhyPath, schedulerapi.FitPath, schedulerapi.WhatIfPath} {
		mux.Handle(path, onlyMethod(http.MethodPost, h.placement))
	}
	return newBounds().limit(mux)
}

type handler struct{ Options }

// onlyMethod answers with 405 to requests of another method.
func onlyMethod(method string, f http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method {
			w.Header().Set("Allow", method)
			fail(w, problem(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s takes %s, not %s",
				r.URL.Path, method, r.Method))
			return
		}
		f(w, r)
	})
}

func (h *handler) server(w http.ResponseWriter, _ *http.Request) { answer(w, h.Self.Server()) }

func (h *handler) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(schedulerapi.OpenAPI())) // the client has gone
}

func (h *handler) placement(w http.ResponseWriter, r *http.Request) {
	if h.Options.Placement == nil {
		fail(w, problem(http.StatusNotFound, metav1.StatusReasonNotFound,
			"this scheduler does not answer questions about placement, such as %s", r.URL.Path))
		return
	}
	if err := h.errIncomplete(); err != nil {
		fail(w, err)
		return
	}
	h.Options.Placement.ServeHTTP(w, r)
}

// errIncomplete returns an error until the scheduler knows all of the cluster.
func (h *handler) errIncomplete() *apierrors.StatusError {
	if !h.Self.Server().CompleteSince.IsZero() {
		return nil
	}
	err := apierrors.NewServiceUnavailable("the scheduler does not know all nodes and pods yet; retry in a second")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return err
}

func (h *handler) nodes(w http.ResponseWriter, r *http.Request) {
	query, limit, err := parse(r, schedulerapi.NameParameter)
	if err == nil {
		err = h.errIncomplete()
	}
	if err != nil {
		fail(w, err)
		return
	}
	p := &page{Scheduler: h.Self.Server().Instance, limit: limit}
	name := query.Get(schedulerapi.NameParameter)
	failed := h.Source.Nodes(r.Context(), name, query.Get(schedulerapi.ContinueParameter),
		func(node schedulerapi.Node) bool { return p.add(node.Name, node) })
	p.write(w, failed, name, "node")
}

func (h *handler) pods(w http.ResponseWriter, r *http.Request) {
	query, limit, err := parse(r, schedulerapi.NamespaceParameter, schedulerapi.NameParameter,
		schedulerapi.NodeParameter)
	wanted := PodQuery{
		Namespace: query.Get(schedulerapi.NamespaceParameter), Name: query.Get(schedulerapi.NameParameter),
		Node: query.Get(schedulerapi.NodeParameter), After: query.Get(schedulerapi.ContinueParameter),
	}
	if err == nil && wanted.Name != "" && wanted.Namespace == "" {
		err = apierrors.NewBadRequest(fmt.Sprintf("%s=%s names a pod of no namespace: add %s",
			schedulerapi.NameParameter, wanted.Name, schedulerapi.NamespaceParameter))
	}
	if err == nil {
		err = h.errIncomplete()
	}
	if err != nil {
		fail(w, err)
		return
	}
	p := &page{Scheduler: h.Self.Server().Instance, limit: limit}
	failed := h.Source.Pods(r.Context(), wanted,
		func(pod schedulerapi.Pod) bool { return p.add(key(pod.Namespace, pod.Name), pod) })
	p.write(w, failed, wanted.Name, "pod that holds devices or waits for some")
}

// parse returns the query of a request for a list, which may have these parameters, and the limit
// of the answer.
func parse(r *http.Request, allowed ...string) (url.Values, int, *apierrors.StatusError) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("cannot read the query: %v", err))
	}
	allowed = append(allowed, schedulerapi.LimitParameter, schedulerapi.ContinueParameter)
	for parameter, values := range query {
		if !slices.Contains(allowed, parameter) {
			return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("the parameter %q is unknown: %s has %q",
				parameter, r.URL.Path, allowed))
		}
		if len(values) > 1 {
			return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("the query has the parameter %q %d times", parameter,
				len(values)))
		}
	}
	limit := schedulerapi.MaxLimit
	if text := query.Get(schedulerapi.LimitParameter); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return nil, 0, apierrors.NewBadRequest(fmt.Sprintf("the limit %q is not a number from 1 on", text))
		}
	}
	return query, min(limit, schedulerapi.MaxLimit), nil
}

// page is one answer to a list request, with encoded items: a schedulerapi.NodeList or PodList.
type page struct {
	Scheduler schedulerapi.Instance `json:"scheduler"`
	Items     []json.RawMessage     `json:"items"`
	Continue  string                `json:"continue,omitempty"`

	limit, size int
	last        string // key of the last item
	err         error
}

// add adds an item to the page. It returns false, and does not add it, when the page is full.
func (p *page) add(key string, item any) bool {
	text, err := json.Marshal(item)
	switch {
	case err != nil:
		p.err = err
		return false
	case len(p.Items) == p.limit, len(p.Items) > 0 && p.size+len(text) > maxPage:
		p.Continue = p.last
		return false
	}
	p.Items, p.size, p.last = append(p.Items, text), p.size+len(text), key
	return true
}

// write answers with the page. failed is the error that made it incomplete; name is the name of the
// requested object, or empty.
func (p *page) write(w http.ResponseWriter, failed error, name, kind string) {
	failed = cmp.Or(failed, p.err)
	switch {
	case errors.Is(failed, context.DeadlineExceeded):
		fail(w, apierrors.NewTimeoutError(fmt.Sprintf("the answer takes longer than %v; request less at a time, with "+
			"the parameter %q", answerTimeout, schedulerapi.LimitParameter), retryAfterSeconds))
	case failed != nil:
		fail(w, apierrors.NewInternalError(failed))
	case name != "" && len(p.Items) == 0:
		fail(w, problem(http.StatusNotFound, metav1.StatusReasonNotFound, "there is no %s called %q", kind, name))
	default:
		if p.Items == nil {
			p.Items = []json.RawMessage{} // an empty list, not null
		}
		answer(w, p)
	}
}

// problem returns an error with an API status.
func problem(code int32, reason metav1.StatusReason, format string, args ...any) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

// answer answers with an object in JSON.
func answer(w http.ResponseWriter, object any) { write(w, http.StatusOK, object) }

// fail writes an error, as the API server does.
func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	write(w, int(status.Code), status)
}

func write(w http.ResponseWriter, status int, object any) {
	text, err := json.Marshal(object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client has gone
}
