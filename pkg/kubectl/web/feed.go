// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

const (
	// interval is the least time between two changes that are sent.
	interval = 250 * time.Millisecond
	// chunk is how many nodes a message has at most: a page shows the first ones while the others
	// are on their way, and draws in between. With 200, an update of 2,500 nodes took up to 124 ms,
	// on two CPUs with the API server; with 50, 54 ms.
	chunk = 50
	// backlog is how many changes a reader may be behind. Who is slower is dropped, and comes back
	// for a new snapshot.
	backlog = 16
	// maxReaders is how many streams there may be.
	maxReaders = 32
)

// message is one server-sent event. A stream begins with a snapshot: one message or several, the
// first with Reset and the last with Complete. What a page knows and the snapshot has not is gone.
// Then come changes, each one message or several. Nodes are those of package devices, as they are
// now; pods too, but only those that wait, or whose annotation cannot be read: nodes show the
// others, as holders. Unread is that the cluster is not read any more, until Read or Reset.
type message struct {
	Reset     bool              `json:"reset,omitempty"`
	Cluster   string            `json:"cluster,omitempty"` // its name, with Reset
	Complete  bool              `json:"complete,omitempty"`
	Unread    *unread           `json:"unread,omitempty"`
	Read      bool              `json:"read,omitempty"`
	Nodes     []json.RawMessage `json:"nodes,omitempty"`
	Pods      []json.RawMessage `json:"pods,omitempty"`
	GoneNodes []string          `json:"goneNodes,omitempty"` // names
	GonePods  []string          `json:"gonePods,omitempty"`  // UIDs
}

// unread is since when the cluster is not read, and why.
type unread struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// feed has what the map shows, and readers who follow it. It is safe for concurrent use.
type feed struct {
	name  string        // of the cluster, or ""
	known chan struct{} // is closed when the cluster is known

	mu      sync.Mutex
	state   cluster.State
	nodes   map[string]json.RawMessage // by name
	pods    map[string]json.RawMessage // by UID
	unread  *unread                    // nil while the cluster is read
	readers map[*reader]bool
}

// reader follows a feed.
type reader struct {
	changes chan [][]byte // the messages of each change; is closed when the reader is dropped
}

func newFeed() *feed {
	return &feed{
		known: make(chan struct{}), nodes: map[string]json.RawMessage{}, pods: map[string]json.RawMessage{},
		readers: map[*reader]bool{},
	}
}

// follow keeps the feed up to date until ctx ends. Changes that come within an interval are one.
func (f *feed) follow(ctx context.Context, from *cluster.Reader) error {
	first := true
	pods := cluster.Query{Fields: "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" +
		string(corev1.PodFailed)}
	return from.Watch(ctx, &cluster.Query{}, &pods, func(changes []cluster.Change) error {
		if err := f.change(changes); err != nil {
			return err
		}
		if first {
			close(f.known)
			first = false
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
		return nil
	}, f.reads)
}

// reads takes over that the cluster cannot be read, or nil that it can again.
func (f *feed) reads(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := message{Read: true}
	if err != nil {
		m = message{Unread: &unread{Since: time.Now(), Why: reason(err)}}
	}
	switch last := f.unread; {
	case last == nil && err == nil, last != nil && err != nil && last.Why == m.Unread.Why:
		return
	case last != nil && err != nil:
		m.Unread.Since = last.Since
	}
	f.unread = m.Unread
	f.send(&m) //nolint:errcheck // it can be encoded
}

// reason returns an error without the address of the request, which is another one each time.
func reason(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return err.Error()
}

// change takes changes over, and sends readers what looks different.
func (f *feed) change(changes []cluster.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	difference, err := f.apply(changes)
	if difference == nil || err != nil {
		return err
	}
	return f.send(difference)
}

// send sends a message to all readers.
func (f *feed) send(m *message) error {
	var texts [][]byte
	for _, part := range m.split() {
		text, err := json.Marshal(part)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	for r := range f.readers {
		select {
		case r.changes <- texts:
		default:
			f.remove(r)
		}
	}
	return nil
}

// apply takes changes over and returns what looks different, or nil.
func (f *feed) apply(changes []cluster.Change) (*message, error) {
	names, uids := f.state.Apply(changes)
	m := &message{}
	different := false
	for _, name := range names {
		now, err := f.node(name)
		if err != nil {
			return nil, err
		}
		switch last := f.nodes[name]; {
		case bytes.Equal(now, last):
			continue
		case now == nil:
			delete(f.nodes, name)
			m.GoneNodes = append(m.GoneNodes, name)
		default:
			f.nodes[name] = now
			m.Nodes = append(m.Nodes, now)
		}
		different = true
	}
	for _, uid := range uids {
		now, err := pod(f.state.Pod(uid))
		if err != nil {
			return nil, err
		}
		switch last := f.pods[string(uid)]; {
		case bytes.Equal(now, last):
			continue
		case now == nil:
			delete(f.pods, string(uid))
			m.GonePods = append(m.GonePods, string(uid))
		default:
			f.pods[string(uid)] = now
			m.Pods = append(m.Pods, now)
		}
		different = true
	}
	if !different {
		return nil, nil
	}
	return m, nil
}

// node returns a node as the map shows it, or nil.
func (f *feed) node(name string) (json.RawMessage, error) {
	node, pods := f.state.Node(name)
	if node == nil || !devices.MayHaveDevices(node) {
		return nil, nil
	}
	return json.Marshal(devices.NewNode(node, pods, time.Now()))
}

// pod returns a pod that waits, or whose annotation cannot be read; nil for all others.
func pod(source *corev1.Pod) (json.RawMessage, error) {
	if source == nil {
		return nil, nil
	}
	p := devices.NewPod(source)
	if p == nil || p.State != devices.Waiting && p.State != devices.Unreadable {
		return nil, nil
	}
	return json.Marshal(p)
}

// errCrowded is returned to one reader too many.
var errCrowded = errors.New("too many pages follow the map: close some")

// join adds a reader. The snapshot is what the reader's messages build on.
func (f *feed) join() (snapshot []message, r *reader, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.readers) >= maxReaders {
		return nil, nil, errCrowded
	}
	r = &reader{changes: make(chan [][]byte, backlog)}
	f.readers[r] = true
	return f.snapshot(), r, nil
}

// snapshot returns all that the map shows.
func (f *feed) snapshot() []message {
	all := message{Reset: true, Cluster: f.name, Unread: f.unread}
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		all.Pods = append(all.Pods, f.pods[uid])
	}
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		all.Nodes = append(all.Nodes, f.nodes[name])
	}
	list := all.split()
	list[len(list)-1].Complete = true
	return list
}

// split returns messages of at most chunk nodes that say the same. The first has all but nodes.
func (m message) split() []message {
	nodes := m.Nodes
	m.Nodes = nil
	list := []message{m}
	for part := range slices.Chunk(nodes, chunk) {
		if last := &list[len(list)-1]; last.Nodes == nil {
			last.Nodes = part
		} else {
			list = append(list, message{Nodes: part})
		}
	}
	return list
}

// leave removes a reader.
func (f *feed) leave(r *reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(r)
}

func (f *feed) remove(r *reader) {
	if f.readers[r] {
		delete(f.readers, r)
		close(r.changes)
	}
}
