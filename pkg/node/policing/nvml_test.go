// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/node"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// contextMemory is what the driver takes for each process on the fake's GPUs.
const contextMemory = 518 << 20

// host is a machine with a GPU of the fake of NVML, whose memory containers share.
type host struct {
	t       *testing.T
	library nvmltest.Library
	gpu     *node.Device
	node    *types.NodeInfo
	memory  types.ResourceName // of the GPU
	proc    fstest.MapFS
	clock   *clocktesting.FakeClock

	containers []*tenant
	reader     *usage.Reader
	controller *Controller
	warned     map[string]int // by pod
}

// tenant is a container that holds a share of the GPU.
type tenant struct {
	name      string
	share     int64
	processes []int64 // what each of them allocates
	ended     time.Time
}

func newHost(t *testing.T) *host {
	h := &host{
		t: t, library: nvmltest.Build(t, nvmltest.Machine{Ancestor: [][]int{{0}}}), node: types.NewNodeInfo(),
		clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
	}
	h.gpu = node.New(node.Paths{NVML: h.library.Path, Config: filepath.Join(t.TempDir(), "none")})
	if err := h.gpu.Start(); err != nil {
		t.Fatal(err)
	}
	if err := h.gpu.UpdateNodeInfo(h.node); err != nil {
		t.Fatal(err)
	}
	for name := range h.node.Capacity {
		if filepath.Base(string(name)) == "memory" {
			h.memory = name
		}
	}
	h.begin()
	return h
}

// begin has a new kubecri, and no container.
func (h *host) begin() {
	h.containers, h.warned = nil, map[string]int{}
	h.proc = fstest.MapFS{"uptime": {Data: []byte("3600.00 0.00\n")}}
	h.reader = usage.New(usage.Options{
		Plugins: h, Grants: h, Runtime: h, Proc: h.proc, Clock: clock.WithTicker(h.clock), Interval: interval,
		Contexts: usage.ContextMemory{usage.AnyModel: contextMemory},
	})
	h.controller = New(Options{
		Usage: h.reader, Interval: interval, Pods: h, Default: End, GracePeriod: grace, Ender: h, Evictor: h,
		Events: h, Metrics: h, Clock: h.clock,
	})
}

// add adds a container with a share.
func (h *host) add(share int64, processes ...int64) *tenant {
	c := &tenant{name: fmt.Sprintf("pod-%d", len(h.containers)), share: share, processes: processes}
	h.containers = append(h.containers, c)
	return c
}

// idOf is the ID of a container by its number.
func idOf(n int) string { return fmt.Sprintf("%064x", n+1) }

// pass lets an interval pass, and then reads and reviews what the containers use.
func (h *host) pass() *usage.Snapshot {
	h.t.Helper()
	h.clock.Step(interval)
	for name := range h.proc {
		if name != "uptime" {
			delete(h.proc, name)
		}
	}
	used := nvmltest.Usage{Busy: nvmltest.Unknown}
	pid := 100
	for n, c := range h.containers {
		if !c.ended.IsZero() {
			continue
		}
		for _, bytes := range c.processes {
			pid++
			if bytes >= 0 {
				bytes += contextMemory
			}
			used.Processes = append(used.Processes, nvmltest.Process{PID: pid, Memory: bytes})
			h.proc[strconv.Itoa(pid)+"/stat"] = &fstest.MapFile{Data: fmt.Appendf(nil,
				"%d (train) S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 1000 1 1", pid)}
			h.proc[strconv.Itoa(pid)+"/cgroup"] = &fstest.MapFile{Data: []byte(
				"0::/kubepods.slice/kubepods-pod0.slice/cri-containerd-" + idOf(n) + ".scope\n")}
		}
	}
	h.library.SetUsage(h.t, map[string]nvmltest.Usage{nvmltest.UUID(0): used})
	now := h.reader.Read(h.t.Context())
	if now.Err != nil || len(now.Devices) != 1 {
		h.t.Fatalf("the reading is %+v", now)
	}
	h.controller.review(h.t.Context(), now)
	h.controller.running.Wait()
	return now
}

func (h *host) Inventory() (*plugins.Inventory, <-chan struct{}) {
	return &plugins.Inventory{Node: h.node}, nil
}

func (h *host) Usage(context.Context) (map[string]device.Usage, bool, error) {
	all, err := h.gpu.DeviceUsage()
	return all, true, err
}

func (h *host) Synced() <-chan struct{} { return nil }

func (h *host) List() (list []grants.Allocation) {
	for _, c := range h.containers {
		main := types.NewContainerInfo()
		main.DevRequests["request"], main.AllocateFrom["request"] = c.share, h.memory
		pod := types.NewPodInfo()
		pod.RunningContainers["main"] = *main
		list = append(list, grants.Allocation{PodUID: c.name, Namespace: "team", Name: c.name, PodInfo: pod})
	}
	return list
}

func (h *host) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	all := map[string]grants.RuntimeState{}
	for n, c := range h.containers {
		all[c.name] = grants.RuntimeState{Live: true, Namespace: "team", Name: c.name,
			Containers: []grants.RuntimeContainer{{ID: idOf(n), Name: "main"}}}
	}
	return all, nil
}

func (h *host) Get(uid string) (pods.Pod, bool) { return pods.Pod{Namespace: "team", Name: uid}, true }
func (h *host) Check() error                    { return nil }

func (h *host) EndContainer(_ context.Context, id string) error {
	for n, c := range h.containers {
		if idOf(n) == id {
			c.ended = h.clock.Now()
			return nil
		}
	}
	return fmt.Errorf("there is no container %s", id)
}

func (h *host) Evict(context.Context, *corev1.ObjectReference, devicehealth.EvictionReasons) bool {
	return false
}

func (h *host) Warn(pod *corev1.ObjectReference, reason, _ string) {
	if reason == reasonExceeded {
		h.warned[pod.Name]++
	}
}

func (h *host) ObserveShareExceeded(Action) {}

func TestAContainerThatExceedsItsShareOfAGPUIsEndedAndItsNeighboursAreNot(t *testing.T) {
	const rounds = 100
	h, random := newHost(t), rand.New(rand.NewPCG(1, 2))
	inTime := 0
	for range rounds {
		h.begin()
		for range 1 + random.IntN(4) { // at their limit, and below it
			share := (1 + random.Int64N(10)) * gib
			h.add(share, share)
			h.add(share, random.Int64N(share/2), random.Int64N(share/2))
			h.add(share)
		}
		greedy := h.containers[random.IntN(len(h.containers))]
		for range random.IntN(4) {
			h.pass()
		}
		// More by a byte or by a lot, in one process or in several.
		greedy.processes = []int64{greedy.share + 1 + random.Int64N(5*gib)}
		for range random.IntN(3) {
			greedy.processes = append(greedy.processes, random.Int64N(gib))
		}
		h.pass()
		since := h.clock.Now()
		for greedy.ended.IsZero() && h.clock.Since(since) < time.Minute {
			h.pass()
		}
		if took := greedy.ended.Sub(since); took > grace && took <= grace+2*interval && h.warned[greedy.name] == 1 {
			inTime++
		} else {
			t.Errorf("it ended after %v, with %d events", took, h.warned[greedy.name])
		}
		for range 6 {
			h.pass()
		}
		for _, c := range h.containers {
			if c != greedy && (!c.ended.IsZero() || h.warned[c.name] > 0) {
				t.Errorf("a neighbour with %d of %d bytes was ended, or its pod got an event", c.processes, c.share)
			}
		}
	}
	t.Logf("%d of %d ended in time", inTime, rounds)
}

func TestNoContainerIsEndedInAnHourOfUseBelowItsShare(t *testing.T) {
	h, random := newHost(t), rand.New(rand.NewPCG(3, 4))
	for range 8 {
		h.add((2 + random.Int64N(8)) * gib)
	}
	for range int(time.Hour / interval) {
		for _, c := range h.containers {
			if c.processes = nil; random.IntN(5) == 0 {
				continue // it is idle
			}
			left := c.share
			for range 1 + random.IntN(usage.MaxContexts-1) {
				use := random.Int64N(left + 1)
				if random.IntN(10) == 0 {
					use = left // all of the share
				}
				left -= use
				c.processes = append(c.processes, use)
			}
			if random.IntN(20) == 0 {
				c.processes = append(c.processes, nvmltest.Unknown)
			}
		}
		h.pass()
	}
	for _, c := range h.containers {
		if !c.ended.IsZero() || h.warned[c.name] > 0 {
			t.Errorf("a container with a share of %d was ended, or its pod got an event", c.share)
		}
	}
}

func TestAPeakThatIsShorterThanTheGracePeriodHasNoConsequence(t *testing.T) {
	h, random := newHost(t), rand.New(rand.NewPCG(5, 6))
	c := h.add(10*gib, 10*gib)
	for range 100 {
		c.processes = []int64{20 * gib}
		for range 1 + random.IntN(3) { // 20 seconds from the first to the last
			h.pass()
		}
		c.processes = []int64{10 * gib}
		h.pass()
	}
	if !c.ended.IsZero() || len(h.warned) > 0 {
		t.Errorf("it was ended at %v, with the events %v", c.ended, h.warned)
	}
}

func TestProcessesWithoutWorkAreNoWayAroundAShare(t *testing.T) {
	h := newHost(t)
	c := h.add(gib)
	for range 2 * usage.MaxContexts {
		c.processes = append(c.processes, gib/usage.MaxContexts/2)
	}
	for range 6 {
		h.pass()
	}
	if c.ended.IsZero() {
		t.Error("32 processes use 17 GiB in a share of 1 GiB, and go on")
	}
}
