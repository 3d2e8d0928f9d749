// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// DefaultInterval is the time between two readings where nothing else is configured.
const DefaultInterval = 10 * time.Second

// Plugins read the usage of the node's devices. *plugins.Manager implements it.
type Plugins interface {
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
	// Usage returns the usage by device. See plugins.Manager.
	Usage(ctx context.Context) (all map[string]device.Usage, reports bool, err error)
	// Synced returns a channel that is closed when the plugins have reported their devices.
	Synced() <-chan struct{}
}

// Grants has the node's granted allocations. *grants.Checkpoint implements it.
type Grants interface {
	List() []grants.Allocation
}

// Options are what a reader needs.
type Options struct {
	Plugins Plugins
	Grants  Grants
	Runtime grants.Runtime
	// Proc is the host's /proc.
	Proc  fs.FS
	Clock clock.WithTicker
	// Interval is the time between two readings.
	Interval time.Duration
	// Contexts is how much of the memory of processes does not count against shares.
	Contexts ContextMemory
}

// Reader reads the usage of the node's devices. All methods are safe for concurrent use, but Read,
// which Run calls.
type Reader struct {
	options    Options
	processes  processes
	containers containers

	mu      sync.Mutex
	latest  *Snapshot
	changed chan struct{} // closed and replaced when latest is
}

// New returns a reader; call Run.
func New(options Options) *Reader {
	return &Reader{
		options: options, processes: processes{options.Proc},
		containers: containers{runtime: options.Runtime}, latest: &Snapshot{}, changed: make(chan struct{}),
	}
}

// Latest returns the latest reading, and a channel that is closed when there is another one.
func (r *Reader) Latest() (latest *Snapshot, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.changed
}

// Run reads every interval until ctx is done. What goes wrong is logged once, until it changes.
func (r *Reader) Run(ctx context.Context) {
	select {
	case <-r.options.Plugins.Synced():
	case <-ctx.Done():
		return
	}
	ticker := r.options.Clock.NewTicker(r.options.Interval)
	defer ticker.Stop()
	last := ""
	for {
		now := r.Read(ctx)
		if ctx.Err() != nil {
			return
		}
		text := ""
		if now.Err != nil {
			text = now.Err.Error()
		}
		if text != last && text != "" {
			klog.FromContext(ctx).Error(now.Err, "Some of the usage of devices is unknown")
		}
		last = text
		r.mu.Lock()
		r.latest = now
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// Read reads the usage of all devices now.
func (r *Reader) Read(ctx context.Context) *Snapshot {
	snapshot := &Snapshot{Time: r.options.Clock.Now()}
	running, err := r.processes.sinceBoot() // all processes that plugins report are so, or were
	if err != nil {
		snapshot.Err = err
		return snapshot
	}
	inventory, _ := r.options.Plugins.Inventory()
	all, reports, err := r.options.Plugins.Usage(ctx)
	snapshot.Reports = reports
	if len(all) == 0 {
		snapshot.Err = err
		return snapshot
	}
	s := scan{
		Reader: r, now: snapshot.Time, running: running, owners: map[int]owner{},
		holdings: holdings(r.options.Grants.List(), inventory.Node.Capacity),
	}
	r.containers.begin(s.now)
	for name := range inventory.Node.Capacity {
		devicePath := path.Dir(string(name))
		usage, known := all[devicePath]
		if !known {
			continue
		}
		delete(all, devicePath) // it has several resources
		read := s.device(ctx, devicePath, usage, r.options.Contexts.Of(modelOf(inventory.Attributes[devicePath])))
		read.Resource = name
		snapshot.Devices = append(snapshot.Devices, read)
	}
	slices.SortFunc(snapshot.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	snapshot.Err = errors.Join(err, s.err)
	return snapshot
}

// scan is one reading.
type scan struct {
	*Reader
	now      time.Time
	running  int64         // ticks after boot
	owners   map[int]owner // of processes, by PID
	holdings map[string]map[Identity]holding
	err      error // the first one of the runtime's
}

// owner is the container of a process.
type owner struct {
	Identity
	known bool
}

// device returns the usage of a device by containers. contextMemory is that of each process.
func (s *scan) device(ctx context.Context, name string, usage device.Usage, contextMemory int64) Device {
	d := Device{
		Name: name, MemoryTotal: usage.MemoryTotal, MemoryUsed: usage.MemoryUsed, Utilization: usage.Utilization,
		Complete: usage.Complete,
	}
	none := Consumption{}
	if usage.Complete {
		none.Memory = device.Read(0)
	}
	d.Unowned = none
	held := s.holdings[name]
	users := map[Identity]*Consumption{}
	for _, p := range usage.Processes {
		user := s.owner(ctx, p.PID)
		if !user.known {
			d.Unowned.add(p, 0)
			continue
		}
		if users[user.Identity] == nil {
			consumption := none
			users[user.Identity] = &consumption
		}
		users[user.Identity].add(p, contextMemory)
	}
	using := map[Identity]bool{} // by holder
	for user, consumption := range users {
		holder := user
		holder.ID = ""
		using[holder] = true
		c := Container{Identity: user, Consumption: *consumption, Share: device.Read(0)}
		if h, holds := held[holder]; holds {
			c.Holds, c.Share = true, h.share(usage.MemoryTotal)
		}
		d.Containers = append(d.Containers, c)
	}
	for user, h := range held {
		if !using[user] {
			d.Containers = append(d.Containers, Container{
				Identity: user, Consumption: none, Holds: true, Share: h.share(usage.MemoryTotal),
			})
		}
	}
	slices.SortFunc(d.Containers, func(a, b Container) int { return a.compare(b.Identity) })
	return d
}

// compare orders containers by what people call them.
func (i Identity) compare(other Identity) int {
	return cmp.Or(strings.Compare(i.Namespace, other.Namespace), strings.Compare(i.Pod, other.Pod),
		strings.Compare(i.Name, other.Name), strings.Compare(i.PodUID, other.PodUID), strings.Compare(i.ID, other.ID))
}

// owner returns the container of a process. It is looked up once in a scan.
func (s *scan) owner(ctx context.Context, pid int) owner {
	if found, known := s.owners[pid]; known {
		return found
	}
	var found owner
	if cgroups, err := s.processes.cgroups(pid, s.running); err == nil { // else it has ended
		found.Identity, found.known, err = s.containers.owner(ctx, s.now, cgroups)
		s.err = cmp.Or(s.err, err)
	}
	s.owners[pid] = found
	return found
}
