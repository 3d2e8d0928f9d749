// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicepage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// NewHandler returns the page's handler, which answers to Path only. One page is made at a time: it
// calls the plugins, as scheduling does.
func NewHandler(source Source) http.Handler {
	p := &page{source: source, semaphore: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, p)
	return mux
}

type page struct {
	source    Source
	semaphore chan struct{} // holds one token while a page is made
}

// ServeHTTP answers with the page, 400 for a query that means nothing, 404 for a pod or a node that
// is not there.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case p.semaphore <- struct{}{}:
		defer func() { <-p.semaphore }()
	case <-r.Context().Done():
		return
	}
	query := r.URL.Query()
	output, node, pod := query.Get("output"), query.Get("node"), query.Get("pod")
	if output != "" && output != "json" {
		http.Error(w, fmt.Sprintf("output %q is unknown: use json, or none for text", output), http.StatusBadRequest)
		return
	}
	var shown content
	var status int
	var err error
	if pod != "" {
		shown, status, err = p.pod(r.Context(), pod)
	} else {
		shown, status, err = p.nodes(r.Context(), node)
	}
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	var body bytes.Buffer
	if output == "json" {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(shown)
	} else {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		err = shown.writeText(&body)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = body.WriteTo(w) // the reader is gone
}

// content is what the page shows, in either form.
type content interface{ writeText(io.Writer) error }

func (p *page) nodes(ctx context.Context, name string) (content, int, error) {
	nodes, err := p.source.Nodes(ctx, name)
	switch {
	case err != nil:
		return nil, http.StatusInternalServerError, err
	case name != "" && len(nodes) == 0:
		return nil, http.StatusNotFound, fmt.Errorf("there is no node %q", name)
	}
	return nodeList{nodes}, 0, nil
}

func (p *page) pod(ctx context.Context, key string) (content, int, error) {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, http.StatusBadRequest, fmt.Errorf("pod %q: write namespace/name", key)
	}
	pod, err := p.source.Pod(ctx, namespace, name)
	switch {
	case err != nil:
		return nil, http.StatusInternalServerError, err
	case pod == nil:
		return nil, http.StatusNotFound, fmt.Errorf("there is no pod %q that is pending or running", key)
	}
	return pod, 0, nil
}
