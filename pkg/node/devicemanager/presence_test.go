// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/statetest"
)

// present is a manager of one resource, whose plugins are sessions without sockets.
type present struct {
	*testing.T
	*Manager
	clock    *clocktesting.FakeClock
	sessions []*session
	seen     []string
}

func newPresent(t *testing.T) *present {
	clock := clocktesting.NewFakeClock(time.Now())
	p := &present{T: t, Manager: New(Options{Clock: clock}), clock: clock}
	p.note()
	t.Cleanup(func() {
		for _, s := range p.sessions {
			s.close()
		}
		p.running.Wait()
	})
	return p
}

// note notes the resource's presence.
func (p *present) note() { p.seen = append(p.seen, p.Manager.lookup(qat).presence.String()) }

// silent is a plugin that lists nothing by itself.
type silent struct{ pluginapi.DevicePluginClient }

// ListAndWatch waits for the end of the test.
func (silent) ListAndWatch(
	ctx context.Context, _ *pluginapi.Empty, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// registers has another plugin register.
func (p *present) registers() *session {
	p.Helper()
	conn, err := Dial(filepath.Join(p.TempDir(), "none"))
	if err != nil {
		p.Fatal(err)
	}
	s := &session{resource: qat, conn: conn, plugin: silent{}, ended: make(chan struct{})}
	p.sessions = append(p.sessions, s)
	p.begin(p.Context(), s, nil)
	p.note()
	return s
}

// lists has a plugin list a device.
func (p *present) lists(s *session) {
	p.update(p.Context(), s, []*pluginapi.Device{dev("a")})
	p.note()
}

// serves has another plugin register and list.
func (p *present) serves() *session {
	s := p.registers()
	p.lists(s)
	return s
}

// leaves has a plugin leave.
func (p *present) leaves(s *session) {
	p.endSession(context.Background(), s, os.ErrClosed)
	p.note()
}

// presenceWalks are the transitions as the comment of presence has them.
var presenceWalks = map[string]func(p *present){
	"Absent a plugin registers -> Arriving": func(p *present) { p.registers() },
	"Absent the state file has its devices -> Lost": func(p *present) {
		d, err := newEntry(kubeletdevice.Device{Resource: qat, ID: "a"})
		if err != nil {
			p.Fatal(err)
		}
		p.mu.Lock()
		r := p.resource(qat)
		r.devices = []entry{d}
		p.lose(r, errNotServing)
		p.mu.Unlock()
		p.note()
	},
	"Lost a plugin registers -> Arriving": func(p *present) {
		p.leaves(p.serves())
		p.registers()
	},
	"Lost Keep has passed -> Absent": func(p *present) {
		p.leaves(p.serves())
		p.clock.Step(KeepCapacity)
		p.note()
	},
	"Lost the kubelet has a device of it -> Absent": func(p *present) {
		p.leaves(p.serves())
		p.updateConflicts(p.Context(), map[types.ResourceName]KubeletHolding{qat: {Device: "b"}})
		p.note()
	},
	"Arriving the plugin lists its devices -> Serving": func(p *present) { p.serves() },
	"Arriving the plugin leaves, and an older one has listed -> Serving": func(p *present) {
		older := p.registers()
		newer := p.registers()
		p.lists(older)
		p.leaves(newer)
	},
	"Arriving the plugin leaves, the last one -> Lost": func(p *present) { p.leaves(p.registers()) },
	"Serving a newer plugin registers -> Succeeding": func(p *present) {
		p.serves()
		p.registers()
	},
	"Serving the plugin leaves, and an older one is to list -> Arriving": func(p *present) {
		p.registers()
		p.leaves(p.serves())
	},
	"Serving the plugin leaves, the last one -> Lost": func(p *present) { p.leaves(p.serves()) },
	"Succeeding the plugin lists its devices -> Serving": func(p *present) {
		p.serves()
		p.serves()
	},
	"Succeeding the plugin leaves, and an older one has listed -> Serving": func(p *present) {
		p.serves()
		p.leaves(p.registers())
	},
	"Succeeding the plugin leaves, and an older one is to list -> Arriving": func(p *present) {
		served := p.serves()
		p.registers()
		newest := p.registers()
		p.leaves(served)
		p.leaves(newest)
	},
	"Succeeding the plugin leaves, the last one -> Lost": func(p *present) {
		older := p.serves()
		newer := p.registers()
		p.leaves(older)
		p.leaves(newer)
	},
}

// TestEveryTransitionOfAPresenceIsWalked walks the transitions of the comment, and holds that there
// are no others in it, in the table above, and on the way.
func TestEveryTransitionOfAPresenceIsWalked(t *testing.T) {
	statetest.Walk(t, "presence.go", presenceWalks, func(t *testing.T, walk func(*present)) []string {
		p := newPresent(t)
		walk(p)
		return p.seen
	})
}
