// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// uptime is how long the host has run when a reading begins.
const uptime = time.Hour

// gpu returns what the names of a GPU's resources have in common.
func gpu(n int) string { return fmt.Sprintf("resource/group/gpu/%d", n) }

// idOf returns the ID of a container, which has 64 digits as those of all runtimes.
func idOf(n int) string { return fmt.Sprintf("%064x", n+1) }

// host is a host whose GPUs are used.
type host struct {
	proc  procFS
	clock *clocktesting.FakeClock

	mu      sync.Mutex
	usage   map[string]device.Usage
	reports bool
	err     error // of the plugins
	pods    map[string]grants.RuntimeState
	lists   int   // how often the runtime has listed them
	listErr error // of the runtime
	granted []grants.Allocation
	gpus    int
}

func newHost(gpus int) *host {
	return &host{
		proc:  procFS{MapFS: fstest.MapFS{"uptime": {Data: fmt.Appendf(nil, "%.2f 0.00\n", uptime.Seconds())}}},
		usage: map[string]device.Usage{}, reports: true, gpus: gpus,
		pods: map[string]grants.RuntimeState{}, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
	}
}

func (h *host) reader() *Reader {
	return New(Options{
		Plugins: h, Grants: h, Runtime: h, Proc: &h.proc, Clock: clock.WithTicker(h.clock),
		Interval: time.Second,
	})
}

func (h *host) read(t *testing.T) *Snapshot { return h.reader().Read(t.Context()) }

func (h *host) Inventory() (*plugins.Inventory, <-chan struct{}) {
	node := types.NewNodeInfo()
	for n := range h.gpus {
		node.Capacity[types.ResourceName(gpu(n)+"/cards")] = 1
		node.Capacity[types.ResourceName(gpu(n)+"/memory")] = 16 << 30
	}
	return &plugins.Inventory{Node: node}, nil
}

func (h *host) Usage(context.Context) (map[string]device.Usage, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]device.Usage{}
	for name, usage := range h.usage {
		all[name] = usage
	}
	return all, h.reports, h.err
}

func (h *host) Synced() <-chan struct{} {
	synced := make(chan struct{})
	close(synced)
	return synced
}

func (h *host) List() []grants.Allocation { return h.granted }

func (h *host) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists++
	return h.pods, h.listErr
}

// run has the runtime run a container "main" of a pod.
func (h *host) run(n int) Identity {
	uid := fmt.Sprintf("uid-%d", n)
	identity := Identity{PodUID: uid, Namespace: "team", Pod: fmt.Sprintf("pod-%d", n), Name: "main", ID: idOf(n)}
	h.pods[uid] = grants.RuntimeState{
		Live: true, Namespace: identity.Namespace, Name: identity.Pod,
		Containers: []grants.RuntimeContainer{{ID: identity.ID, Name: identity.Name}},
	}
	return identity
}

// grant grants a container a quantity of a resource of a GPU.
func (h *host) grant(to Identity, name types.ResourceName, quantity int64) {
	container := types.NewContainerInfo()
	container.DevRequests["request"], container.AllocateFrom["request"] = quantity, name
	pod := types.NewPodInfo()
	pod.RunningContainers[to.Name] = *container
	h.granted = append(h.granted, grants.Allocation{
		PodUID: to.PodUID, Namespace: to.Namespace, Name: to.Pod, PodInfo: pod,
	})
}

// start starts a process in a cgroup of version 2.
func (h *host) start(pid int, cgroup string) { h.startAt(pid, uptime-time.Minute, "0::"+cgroup+"\n") }

func (h *host) startAt(pid int, at time.Duration, cgroups string) {
	h.thread(strconv.Itoa(pid), running, at, cgroups)
}

// Flags of threads that run, and of those that have ended, as a kernel shows them.
const running, ended = 4194560, 4227084

// thread has a process or a thread of one, by its directory in /proc.
func (h *host) thread(of string, flags int, at time.Duration, cgroups string) {
	// The name of the command is the program's own choice.
	stat := fmt.Sprintf("%s (a) R 1 (b)) S 1 1 1 0 -1 %d 1 0 0 0 1 1 0 0 20 0 1 0 %d 1 1",
		path.Base(of), flags, at/tick)
	h.proc.MapFS[of+"/stat"] = &fstest.MapFile{Data: []byte(stat)}
	h.proc.MapFS[of+"/cgroup"] = &fstest.MapFile{Data: []byte(cgroups)}
}

// procFS is a /proc that may change while it is read.
type procFS struct {
	fstest.MapFS
	opened func(name string) // after a file was opened, if set
}

func (p *procFS) Open(name string) (fs.File, error) {
	file, err := p.MapFS.Open(name)
	if p.opened != nil {
		p.opened(name)
	}
	return file, err
}

// pod returns a container's cgroup as the kubelet and containerd name it with systemd.
func pod(n int) string {
	return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" +
		"0b1c2d3e_1111_2222_3333_444455556666.slice/cri-containerd-" + idOf(n) + ".scope"
}

// uses says that processes use 1 GiB each.
func uses(pids ...int) device.Usage {
	usage := device.Usage{
		MemoryTotal: device.Read(16 << 30), MemoryUsed: device.Read(int64(len(pids)) << 30), Complete: true,
	}
	for _, pid := range pids {
		usage.Processes = append(usage.Processes, device.ProcessUsage{PID: pid, Memory: device.Read(1 << 30)})
	}
	return usage
}

func TestAProcessBelongsToTheContainerOfItsCgroup(t *testing.T) {
	id, other := idOf(1), idOf(2)
	for name, test := range map[string]struct {
		cgroups string
		unowned bool
	}{
		"containerd with systemd":          {cgroups: "0::" + pod(1)},
		"containerd with cgroupfs":         {cgroups: "0::/kubepods/burstable/pod0b1c2d3e/" + id},
		"CRI-O with systemd":               {cgroups: "0::/kubepods.slice/kubepods-pod0.slice/crio-" + id + ".scope"},
		"CRI-O with a cgroup of its own":   {cgroups: "0::/kubepods.slice/crio-" + id + ".scope/container"},
		"a runtime that does not agree":    {cgroups: "0::/system.slice/kubepods-pod0b1c.slice:cri-containerd:" + id},
		"a cgroup that the container made": {cgroups: "0::" + pod(1) + "/init.scope"},
		"one that it named like another":   {cgroups: "0::" + pod(1) + "/cri-containerd-" + other + ".scope"},
		"a node that is a container": {
			cgroups: "0::/docker/" + strings.Repeat("e", 64) + "/kubelet.slice" + pod(1),
		},
		"seen from another cgroup namespace": {cgroups: "0::/../../.." + pod(1)},
		"one that is removed":                {cgroups: "0::" + pod(1) + " (deleted)"},
		"version 1": {
			cgroups: "12:memory:" + pod(1) + "\n11:cpu,cpuacct:" + pod(1) + "\n1:name=systemd:" + pod(1) + "\n0::/",
		},
		"version 1, disagreeing": {cgroups: "12:memory:" + pod(1) + "\n11:cpu:" + pod(2), unowned: true},
		"a program of the host":  {cgroups: "0::/system.slice/nvidia-persistenced.service", unowned: true},
		"a container of no pod":  {cgroups: "0::/docker/" + strings.Repeat("d", 64), unowned: true},
		"the root":               {cgroups: "0::/", unowned: true},
		"a sandbox, which is not here": {
			cgroups: "0::/kubepods/burstable/pod1/" + strings.Repeat("c", 64), unowned: true,
		},
		"nothing": {cgroups: "", unowned: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(1)
			want := h.run(1)
			h.run(2)
			h.startAt(10, time.Minute, test.cgroups)
			h.usage[gpu(0)] = uses(10)
			got := h.read(t).Devices[0]
			if test.unowned != (got.Unowned.Processes == 1) || test.unowned == (len(got.Containers) == 1) {
				t.Fatalf("the device is used by %+v", got)
			}
			if !test.unowned && got.Containers[0].Identity != want {
				t.Errorf("it belongs to %+v", got.Containers[0])
			}
		})
	}
}

func TestAProcessWhoseMainThreadHasEndedBelongsToTheContainerOfTheOthers(t *testing.T) {
	root, inPod := "2:memory:/\n1:cpu:/\n0::/\n", "2:memory:"+pod(1)+"\n1:cpu:"+pod(1)+"\n0::/\n"
	for name, test := range map[string]struct {
		main  string // the cgroups of the main thread
		ended int    // threads that have ended, before the one that runs
		owned bool
	}{
		"which is next":                      {root, 0, true},
		"which is the last that is read":     {root, maxThreads - 2, true},
		"but none that is after those":       {root, maxThreads - 1, false},
		"or its own where the kernel has it": {"0::" + pod(1) + "\n", maxThreads, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(1)
			want := h.run(1)
			started := uptime - time.Minute
			h.thread("100", ended, started, test.main)
			h.thread("100/task/100", ended, started, test.main)
			for n := range test.ended {
				h.thread(fmt.Sprintf("100/task/%d", 101+n), ended, started, root)
			}
			h.thread("100/task/900", running, started, inPod)
			h.usage[gpu(0)] = uses(100)
			got := h.read(t).Devices[0]
			if (got.Unowned.Processes == 0) != test.owned || (len(got.Containers) == 1) != test.owned ||
				test.owned && got.Containers[0].Identity != want {
				t.Errorf("the device is used by %+v", got)
			}
		})
	}
}

func TestAnotherProcessWithTheSamePIDDoesNotCount(t *testing.T) {
	for name, replace := range map[string]func(h *host){
		"which has started since":     func(h *host) { h.startAt(10, uptime+time.Second, "0::"+pod(1)) },
		"which starts at that time":   func(h *host) { h.startAt(10, uptime, "0::"+pod(1)) },
		"which starts while it reads": func(h *host) { h.proc.opened = restart(h, "10/stat") },
		"which starts a bit later":    func(h *host) { h.proc.opened = restart(h, "10/cgroup") },
		"and none that has ended":     func(h *host) { delete(h.proc.MapFS, "10/stat") },
		"and none that is odd":        func(h *host) { h.proc.MapFS["10/stat"].Data = []byte("10 (a) R") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(1)
			h.run(1)
			h.start(10, pod(2))
			h.usage[gpu(0)] = uses(10)
			replace(h)
			got := h.read(t)
			if d := got.Devices[0]; len(d.Containers) != 0 || d.Unowned.Memory != device.Read(1<<30) || got.Err != nil {
				t.Errorf("the device is used by %+v, %v", d, got.Err)
			}
		})
	}
}

// restart has another process, of a container, get the PID 10 once a file was opened.
func restart(h *host, after string) func(string) {
	return func(name string) {
		if name == after {
			h.proc.opened = nil
			h.startAt(10, uptime-time.Second, "0::"+pod(1))
		}
	}
}

func TestTheRuntimeListsItsContainersForNewCgroupsAlone(t *testing.T) {
	h := newHost(1)
	h.run(1)
	h.start(10, pod(1))
	h.start(11, "/system.slice/agent.service")
	h.usage[gpu(0)] = uses(10, 11)
	r := h.reader()
	for step, test := range []struct {
		do    func()
		lists int
	}{
		{func() {}, 1},
		{func() { h.start(12, pod(1)); h.usage[gpu(0)] = uses(10, 11, 12) }, 1},
		{func() { h.start(13, pod(2)); h.run(2); h.usage[gpu(0)] = uses(10, 11, 12, 13) }, 2},
		{func() {}, 2},
		{func() { h.clock.Step(relist) }, 3}, // the runtime may have been starting
	} {
		test.do()
		got := r.Read(t.Context())
		if h.lists != test.lists || got.Devices[0].Unowned.Processes != 1 || got.Err != nil {
			t.Errorf("step %d: %d lists, want %d; %+v", step, h.lists, test.lists, got)
		}
	}
}

func TestUsageHasNoOwnerUntilTheRuntimeAnswers(t *testing.T) {
	h := newHost(1)
	h.run(1)
	h.start(10, pod(1))
	h.start(11, pod(3))
	h.usage[gpu(0)] = uses(10, 11)
	h.listErr = errors.New("connection refused")
	r := h.reader()
	got := r.Read(t.Context())
	if got.Devices[0].Unowned.Processes != 2 || got.Err == nil || h.lists != 1 {
		t.Errorf("without the runtime: %+v, %d lists", got, h.lists)
	}
	h.listErr = nil
	h.run(3)
	if got := r.Read(t.Context()); len(got.Devices[0].Containers) != 2 || got.Err != nil {
		t.Errorf("with it: %+v", got)
	}
}

func TestReadingsFollowEachOtherUntilTheEnd(t *testing.T) {
	h := newHost(1)
	h.err = errors.New("the driver hangs")
	r := h.reader()
	if first, _ := r.Latest(); !first.Time.IsZero() {
		t.Errorf("before the first reading there is %+v", first)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() { r.Run(ctx) })
	next := func(holds func(*Snapshot) bool) {
		t.Helper()
		for {
			latest, changed := r.Latest()
			if !latest.Time.IsZero() && holds(latest) {
				return
			}
			if h.clock.HasWaiters() {
				h.clock.Step(time.Second)
			}
			select {
			case <-changed:
			case <-time.After(time.Millisecond):
			case <-t.Context().Done():
				t.Fatal("there is no other reading")
			}
		}
	}
	next(func(s *Snapshot) bool { return s.Err != nil })
	h.mu.Lock()
	h.err, h.usage[gpu(0)] = nil, uses()
	h.mu.Unlock()
	next(func(s *Snapshot) bool { return s.Err == nil && len(s.Devices) == 1 })
	cancel()
	reading.Wait()
}
