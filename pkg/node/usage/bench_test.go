// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// kernel is a /proc in which each process is this one, but in the cgroup that the test says: the
// kernel's is read, too.
type kernel struct{ cgroups fs.FS }

func (k kernel) Open(name string) (fs.File, error) {
	if name == "uptime" {
		return os.Open("/proc/uptime")
	}
	file, err := os.Open("/proc/self/" + path.Base(name))
	if err != nil || path.Base(name) == "stat" {
		return file, err
	}
	defer file.Close()
	if _, err := file.Read(make([]byte, 512)); err != nil {
		return nil, err
	}
	return k.cgroups.Open(name)
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkRead reads 8 GPUs with 40 processes in 16 containers, each of which has a share, with
// the kernel's /proc. It has no driver, which takes its own time. %core is the share of a core at
// the default interval: at most 0.2.
func BenchmarkRead(b *testing.B) {
	const gpus, pids, holders = 8, 40, 16
	h := newHost(gpus)
	for n := range holders {
		h.grant(h.run(n), types.ResourceName(gpu(n%gpus)+"/memory"), 1<<30)
	}
	for pid := 1; pid <= pids; pid++ {
		h.start(pid, pod(pid%holders))
		name := gpu(pid % gpus)
		usage := h.usage[name]
		usage.Complete = true
		usage.Processes = append(usage.Processes, device.ProcessUsage{PID: pid, Memory: device.Read(1 << 30)})
		h.usage[name] = usage
	}
	b.Run(fmt.Sprintf("gpus=%d/processes=%d", gpus, pids), func(b *testing.B) {
		r := h.reader()
		r.processes.proc = kernel{&h.proc}
		b.ReportAllocs()
		before := cpuTime(b)
		for b.Loop() {
			got := r.Read(b.Context())
			if len(got.Devices) != gpus || got.Devices[0].Unowned.Processes != 0 || got.Err != nil {
				b.Fatalf("%+v", got)
			}
		}
		each := (cpuTime(b) - before) / time.Duration(b.N)
		b.ReportMetric(100*each.Seconds()/DefaultInterval.Seconds(), "%core")
	})
}
