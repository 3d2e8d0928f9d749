// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
)

const (
	// writeTimeout is how long a browser may take for a message.
	writeTimeout = 10 * time.Second
	// heartbeatInterval is how often a quiet stream is written to, so that one whose browser is
	// gone ends.
	heartbeatInterval = 15 * time.Second
	// readTimeout is how long the API server may take for events.
	readTimeout = 10 * time.Second
	// maxEvents is how many events are shown of an object.
	maxEvents = 20
)

// Server serves the map of one cluster.
type Server struct {
	cluster   *cluster.Reader
	listener  net.Listener
	guard     *guard
	feed      *feed
	questions *questions
}

// Listen returns a server of a page that listens at an address of the loopback interface, as
// 127.0.0.1:0, and serves nothing before [Server.Run]. Questions about placement go to the
// scheduler that connect connects to.
func Listen(address string, page fs.FS, reader *cluster.Reader, connect Connect) (*Server, error) {
	if !isLoopback(address) {
		return nil, fmt.Errorf("listen on %q: it is no address of this machine alone, and the map is for its user "+
			"alone: use 127.0.0.1, and \"ssh -L\" from elsewhere", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{cluster: reader, listener: listener, feed: newFeed(), questions: newQuestions(connect)}
	data := http.NewServeMux()
	data.HandleFunc("GET /stream", s.stream)
	data.HandleFunc("GET /events", s.events)
	data.HandleFunc("GET /why", s.questions.why)
	data.HandleFunc("GET /whatif", s.questions.whatIf)
	s.guard = newGuard(http.FileServerFS(page), data)
	return s, nil
}

// Name sets the name of the cluster, which the map shows. Call it before Run.
func (s *Server) Name(cluster string) { s.feed.name = cluster }

// URL returns the address of the map, with the key that opens it.
func (s *Server) URL() string { return s.url(s.guard.key) }

// OnceURL returns an address that opens the map once. The one before it opens nothing then.
func (s *Server) OnceURL() string { return s.url(s.guard.onceKey()) }

func (s *Server) url(key string) string {
	at := url.URL{Scheme: "http", Host: s.listener.Addr().String(), Path: "/"}
	at.Fragment = url.Values{tokenParameter: {key}}.Encode()
	return at.String()
}

// Run serves until ctx ends, and returns nil then. It returns an error when the cluster cannot be
// read, as [cluster.Reader.Watch] does. All that it started has ended when it returns.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	server := &http.Server{
		Handler: s.guard, ReadHeaderTimeout: writeTimeout, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() {
		err := server.Serve(s.listener)
		cancel(err)
		served <- err
	}()
	err := s.feed.follow(ctx, s.cluster)
	cancel(nil) // ends the streams
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer stop()
	if late := server.Shutdown(ending); late != nil {
		server.Close()
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		return errors.Join(err, failed)
	}
	return err
}

// stream sends the map, and what changes, until the browser goes, or is dropped.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	write := func(text []byte) error {
		return errors.Join(out.SetWriteDeadline(time.Now().Add(writeTimeout)), writeTo(w, text), out.Flush())
	}
	if write([]byte("retry: 1000\n\n")) != nil || !s.awaitKnown(r.Context()) {
		return
	}
	snapshot, reader, err := s.feed.join()
	if err != nil {
		write(fmt.Appendf(nil, "event: refused\ndata: %v\n\n", err)) //nolint:errcheck // the stream ends
		return
	}
	defer s.feed.leave(reader)
	for i := range snapshot {
		text, err := json.Marshal(&snapshot[i])
		if err != nil || write(event(text)) != nil {
			return
		}
		snapshot[i] = message{} // no longer needed
	}
	beats := time.NewTicker(heartbeatInterval)
	defer beats.Stop()
	for {
		texts := [][]byte{[]byte(": beat\n\n")}
		select {
		case <-r.Context().Done():
			return
		case <-beats.C:
		case messages, ok := <-reader.changes:
			if !ok {
				return
			}
			texts = texts[:0]
			for _, message := range messages {
				texts = append(texts, event(message))
			}
		}
		for _, text := range texts {
			if write(text) != nil {
				return
			}
		}
	}
}

func (s *Server) awaitKnown(ctx context.Context) bool {
	select {
	case <-s.feed.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// event returns a server-sent event. JSON has no line breaks.
func event(data []byte) []byte {
	return bytes.Join([][]byte{[]byte("data: "), data, []byte("\n\n")}, nil)
}

func writeTo(w http.ResponseWriter, text []byte) error {
	_, err := w.Write(text)
	return err
}

// seen is an event of the cluster, as the page shows it.
type seen struct {
	Time    metav1.Time `json:"time"`
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Count   int32       `json:"count,omitempty"`
}

// events sends what the cluster reports of a node (?node=NAME) or of a pod
// (?namespace=NAMESPACE&uid=UID).
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var about fields.Set
	switch node, uid := query.Get("node"), query.Get("uid"); {
	case node != "":
		about = fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node}
	case uid != "":
		about = fields.Set{"involvedObject.kind": "Pod", "involvedObject.uid": uid}
	default:
		http.Error(w, "events of what? Say node=NAME, or namespace=NAMESPACE and uid=UID.", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	found, err := s.cluster.Events(ctx, query.Get("namespace"), about, maxEvents)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	list := make([]seen, len(found))
	for i := range found {
		e := &found[i]
		list[i] = seen{metav1.NewTime(cluster.LastSeen(e)), e.Type, e.Reason, e.Message, e.Count}
		if e.Series != nil {
			list[i].Count = e.Series.Count
		}
	}
	send(w, list)
}
