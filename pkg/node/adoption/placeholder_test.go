// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestTakesOverAResourceThatTheKubeletRemembersWhenItsPodsAreAdopted(t *testing.T) {
	directory := tempDirectory(t)
	allocation := checkpointEntry{"u", "main", qat, map[string][]string{"0": {"a"}}, []byte("a plugin's")}
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{qat}, allocation)
	g := &fakeGrants{err: errors.New("the API server is away")}
	n := startNode(t, directory, k, g)
	p := startPlugin(t, n.socket("p.sock"), dev("a", 1), dev("b", 1), unhealthy("c"))
	n.register(t, p, qat)
	n.register(t, startPlugin(t, n.socket("q.sock"), dev("a")), gpu)
	n.has(t, gpu, map[string]bool{"none/a": true})
	eventually(t, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.calls == 0 {
			return errors.New("nothing was adopted")
		}
		return nil
	})
	n.has(t, qat, nil)
	if n.KubeletCounts(qat) || k.devices(qat) != nil {
		t.Error("it is taken over before its pods are adopted")
	}

	const b types.ResourceName = "resource/group/numa/1/intel.com:qat/b/device"
	g.succeed()
	n.withhold(t, map[types.ResourceName]string{b: "its holder is not certain"})
	n.controller.takeOver(t.Context())
	k.has(t, qat, map[string]bool{"a": true, "b": true, "c": false})
	n.has(t, qat, map[string]bool{"1/a": true, "1/b": false, "none/c": false})
	if err := n.state(qat).Err; err == nil || !strings.Contains(err.Error(),
		"device b of intel.com/qat is allocated to no pod: its holder is not certain") {
		t.Errorf("the state says %v", err)
	}
	if !n.KubeletCounts(qat) || n.KubeletCounts(gpu) || k.devices(gpu) != nil {
		t.Error("the kubelet should count what it knew, and nothing else")
	}
	isQAT := func(name types.ResourceName) bool { return name == qat }
	if n.KubeletServes(t.Context(), isQAT) {
		t.Error("the kubelet serves it still")
	}

	// What the kubelet allocated differs from what it calls the placeholder for, and has the
	// current name.
	k.remember(t, []types.ResourceName{qat}, allocation,
		checkpointEntry{"v", "main", qat, map[string][]string{"-1": {"b"}}, k.allocate(t, qat, "b")},
		checkpointEntry{"w", "main", qat, map[string][]string{"0": {"x"}, "1": {"x"}}, nil},
		checkpointEntry{"x", "main", gpu, map[string][]string{"0": {"y"}}, nil})
	got, kubelets, err := readAllocated(filepath.Join(k.directory, kubeletstate.CheckpointName), n)
	want := []allocated{
		{"u", "main", []types.ResourceName{"resource/group/numa/1/intel.com:qat/a/device"}},
		{"w", "main", []types.ResourceName{"resource/group/numa/0-1/intel.com:qat/x/device"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(allocated{})); err != nil || diff != "" ||
		!maps.Equal(kubelets, map[entry]bool{{"x", "main", gpu}: true}) {
		t.Errorf("allocated (error %v, the kubelet's own are %v) (-want +got):\n%s", err, kubelets, diff)
	}
	n.withhold(t, nil)
	n.controller.takeOver(t.Context())
	n.has(t, qat, map[string]bool{"1/a": true, "1/b": true, "none/c": false})
}

func TestAPlaceholderReturnsAfterRestartsAndLeavesWithItsPlugin(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{qat})
	const held types.ResourceName = "resource/group/numa/none/intel.com:qat/b/device"
	g := &fakeGrants{list: []grants.Allocation{wants("u", held)}}
	n := startNode(t, directory, k, g)
	p := startPlugin(t, n.socket("p.sock"), dev("a"), unhealthy("b"))
	n.register(t, p, qat)
	// A pod of the scheduler's holds b, and the kubelet knows it by another device.
	all := map[string]bool{"a": true, "b": true}
	k.has(t, qat, all)

	k.stop()
	k.start(t)
	k.has(t, qat, all)
	n.has(t, qat, map[string]bool{"none/a": true, "none/b": false})

	// The next process registers before the plugin is back.
	p.Stop()
	n.has(t, qat, map[string]bool{"none/a": false, "none/b": false})
	stale := filepath.Join(k.directory, socketPrefix+"stale.sock")
	listener, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	n.stop()
	k.has(t, qat, nil)
	n = startNode(t, directory, k, g)
	k.has(t, qat, all)
	if _, err := os.Lstat(stale); !os.IsNotExist(err) {
		t.Errorf("the socket of a process that was killed is there: %v", err)
	}
	n.clock.Step(30 * time.Second)
	k.has(t, qat, nil)
	n.has(t, qat, map[string]bool{"none/a": false, "none/b": false})
	p.serve(t)
	n.register(t, p, qat)
	k.has(t, qat, all)
	n.has(t, qat, map[string]bool{"none/a": true, "none/b": false})

	// A kubelet that has forgotten everything needs no placeholder.
	k.stop()
	k.remember(t, nil)
	k.start(t)
	eventually(t, func() error {
		if n.KubeletCounts(qat) {
			return errors.New("the kubelet counts still")
		}
		return nil
	})
	n.has(t, qat, map[string]bool{"none/a": true, "none/b": false})
	if k.devices(qat) != nil {
		t.Error("the kubelet has a placeholder")
	}
}

func TestAPlaceholderWaitsForAKubeletThatLeavesItAgainAndAgain(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{qat})
	k.leaves = true
	n := startNode(t, directory, k, &fakeGrants{})
	n.register(t, startPlugin(t, n.socket("p.sock"), dev("a")), qat)
	count := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.registrations
	}
	eventually(t, func() error {
		if n := count(); n < 4 {
			return fmt.Errorf("it has registered %d times", n)
		}
		return nil
	})
	before, began := count(), time.Now()
	time.Sleep(2 * registerInterval)
	// Two for each interval; without any, there are hundreds.
	if n, intervals := count()-before, int(time.Since(began)/registerInterval); n > 5*intervals {
		t.Errorf("it registered %d times in %d intervals", n, intervals)
	}
}
