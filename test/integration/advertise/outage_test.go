// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/test/kube"
)

// relay is a wire to the API server that can be cut.
type relay struct {
	*testing.T
	address, server string

	mu       sync.Mutex
	listener net.Listener // nil while cut
	conns    []net.Conn
	carrying sync.WaitGroup
}

func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	r := &relay{T: t, address: "127.0.0.1:0", server: strings.TrimPrefix(server, "https://")}
	r.repair()
	t.Cleanup(r.cut)
	return r
}

// repair lets connections through.
func (r *relay) repair() {
	r.Helper()
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		r.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.address, r.listener = listener.Addr().String(), listener
	r.carrying.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.forward(conn, listener)
		}
	})
}

// forward connects conn with the API server, if the wire is not cut meanwhile.
func (r *relay) forward(conn net.Conn, listener net.Listener) {
	far, err := net.Dial("tcp", r.server)
	if err != nil {
		conn.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != listener {
		conn.Close()
		far.Close()
		return
	}
	r.conns = append(r.conns, conn, far)
	for _, ends := range [][2]net.Conn{{conn, far}, {far, conn}} {
		r.carrying.Go(func() {
			// Either end may go at any time.
			_, _ = io.Copy(ends[0], ends[1])
			ends[0].Close()
			ends[1].Close()
		})
	}
}

// cut ends all connections and refuses new ones.
func (r *relay) cut() {
	r.mu.Lock()
	if r.listener != nil {
		r.listener.Close()
	}
	for _, conn := range r.conns {
		conn.Close()
	}
	r.listener, r.conns = nil, nil
	r.mu.Unlock()
	r.carrying.Wait()
}

func TestChangesDuringAnOutageOfTheAPIServerArePublishedAfterIt(t *testing.T) {
	kubelet := register(t, "node-1")
	wire := newRelay(t, kubelet.Config.Host)
	config := rest.CopyConfig(kubelet.Config)
	config.Host = "https://" + wire.address
	client, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := publish(t, "node-1", client, newGPUs(1))
	n.await("the first inventory")
	n.awaitPatches(2) // their answers too, which must not be cut off
	for i := range 3 {
		wire.cut()
		before := n.failed.Load()
		n.set(newGPUs(2 + i))
		await(t.Context(), t, "that it cannot be published", func() bool { return n.failed.Load() > before })
		if err := n.shows(); err == nil {
			t.Fatal("published over a wire that is cut")
		}
		wire.repair()
		n.await("what changed while the wire was cut")
		n.awaitPatches(int64(2 * (i + 2)))
	}
}
