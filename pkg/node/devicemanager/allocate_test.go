// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func TestAllocateHasExactlyTheAllocatedDevices(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("p.sock"), dev("a"), dev("b"), dev("c"))
	mustRegister(t, h, p, qat)

	answer, err := h.Allocate(t.Context(), qat, []string{"c", "a"}, "pod/main")
	if err != nil {
		t.Fatal(err)
	}
	allocation, err := Decode(answer)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(device.Allocation{Envs: map[string]string{"DEVICES": "a,c"}}, allocation); diff != "" {
		t.Errorf("the container gets (-want +got):\n%s", diff)
	}
	if err := h.PreStart(t.Context(), qat, []string{"c", "a"}); err != nil {
		t.Fatal(err)
	}
	allocated, prepared := p.Calls()
	if diff := cmp.Diff([][]string{{"a", "c"}}, allocated); diff != "" || len(prepared) > 0 {
		t.Errorf("allocated (-want +got):\n%s\nprepared %v", diff, prepared)
	}
}

func TestPreStartIsCalledForPluginsThatRequireIt(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	p.PreStart = true
	mustRegister(t, h, p, qat)

	if err := h.PreStart(t.Context(), qat, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if _, prepared := p.Calls(); !cmp.Equal(prepared, [][]string{{"a"}}) {
		t.Errorf("prepared %v", prepared)
	}
	p.SetError(errors.New("reset is stuck"))
	if err := h.PreStart(t.Context(), qat, []string{"a"}); err == nil ||
		err.Error() != "the device plugin of intel.com/qat does not prepare a: reset is stuck" {
		t.Errorf("a failure is reported as %v", err)
	}
}

func TestAPluginThatFailsToAllocateIsQuoted(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, qat)
	p.SetError(errors.New("no firmware"))
	if _, err := h.Allocate(t.Context(), qat, []string{"a"}, "pod/main"); err == nil ||
		err.Error() != "the device plugin of intel.com/qat does not allocate a: no firmware" {
		t.Errorf("a failure is reported as %v", err)
	}
	p.SetError(nil)
	if _, err := h.Allocate(t.Context(), qat, []string{"a"}, "pod/main"); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func TestTheAnswerOfASlowCallIsKeptForTheNextTry(t *testing.T) {
	for name, fails := range map[string]error{"an answer": nil, "an error": errors.New("no firmware")} {
		t.Run(name, func(t *testing.T) {
			h := startManager(t, tempDirectory(t))
			p := startPlugin(t, h.socket("p.sock"), dev("a"))
			began, proceed := make(chan struct{}, 10), make(chan struct{})
			p.OnAllocate = func([]string) error {
				began <- struct{}{}
				<-proceed
				return fails
			}
			mustRegister(t, h, p, qat)
			for range 3 { // tries of the same container, each of which has too little time
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if _, err := h.Allocate(ctx, qat, []string{"a"}, "pod/main"); err == nil ||
					!strings.Contains(err.Error(), "has not answered yet to Allocate for a; the call goes on") {
					t.Errorf("a try that has too little time: %v", err)
				}
				cancel()
			}
			<-began
			close(proceed)
			answer, err := h.Allocate(t.Context(), qat, []string{"a"}, "pod/main")
			if allocation, decodeErr := Decode(answer); fails == nil && (err != nil || decodeErr != nil ||
				allocation.Envs["DEVICES"] != "a") {
				t.Errorf("the next try gets %v, %v, %v", allocation, err, decodeErr)
			}
			if fails != nil && (err == nil || !strings.Contains(err.Error(), "no firmware")) {
				t.Errorf("the next try fails with %v", err)
			}
			if allocated, _ := p.Calls(); len(allocated) != 1 {
				t.Errorf("the plugin was called %d times", len(allocated))
			}
			if _, err := h.Allocate(t.Context(), qat, []string{"a"}, "other/main"); (err == nil) != (fails == nil) {
				t.Errorf("another container: %v", err)
			}
			if allocated, _ := p.Calls(); len(allocated) != 2 {
				t.Errorf("for two containers the plugin was called %d times", len(allocated))
			}
		})
	}
}

func TestAnUnusedAnswerExpires(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, qat)
	if _, err := h.await(t.Context(), qat, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Allocate(canceled(t), qat, []string{"a"}, "pod/main"); err == nil {
		t.Error("a container that waits no more gets an answer")
	}
	eventually(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range h.calls {
			if c.ended.IsZero() {
				return errors.New("the call has not ended")
			}
		}
		return nil
	})
	h.clock.Step(answerTTL + time.Second)
	if _, err := h.Allocate(t.Context(), qat, []string{"a"}, "other/main"); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) > 0 {
		t.Errorf("%d calls are kept", len(h.calls))
	}
}

func TestAContainerWaitsForAPluginThatComesLate(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	type outcome struct {
		answer []byte
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		answer, err := h.Allocate(t.Context(), qat, []string{"late"}, "pod/main")
		done <- outcome{answer, err}
	}()
	p := startPlugin(t, h.socket("p.sock"), dev("early"))
	mustRegister(t, h, p, qat)
	p.SetDevices(dev("early"), unhealthy("late"))
	h.has(t, qat, map[string]bool{"none/early": true, "none/late": false})
	select {
	case o := <-done:
		t.Fatalf("before the device was there: %v", o.err)
	case <-time.After(100 * time.Millisecond):
	}
	p.SetDevices(dev("early"), dev("late"))
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
}

func TestATimeoutOfAContainerNamesItsReason(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("p.sock"), dev("a"), unhealthy("b"))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true, "none/b": false})
	for want, call := range map[string]func(context.Context) error{
		"no device plugin of nvidia.com/gpu has registered": func(ctx context.Context) error {
			_,
				err := h.Allocate(ctx, gpu, []string{"a"}, "pod/main")
			return err
		},
		"device b of intel.com/qat is unhealthy": func(ctx context.Context) error {
			return h.PreStart(ctx,
				qat, []string{"b"})
		},
		"device c of intel.com/qat is not among those": func(ctx context.Context) error {
			_,
				err := h.Allocate(ctx, qat, []string{"a", "c"}, "pod/main")
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
		cancel()
	}
	p.Stop()
	h.has(t, qat, map[string]bool{"none/a": false, "none/b": false})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := h.Allocate(ctx, qat, []string{"a"}, "pod/main"); err == nil || !strings.Contains(err.Error(),
		"the device plugin of intel.com/qat is gone since") {
		t.Errorf("without the plugin: %v", err)
	}
}

func TestAContainerGetsAllOfAnAnswerAndTheFirstOfDuplicates(t *testing.T) {
	answer, err := proto.Marshal(&pluginapi.ContainerAllocateResponse{
		Envs:        map[string]string{"A": "1"},
		Annotations: map[string]string{"a.b/c": "d"},
		Devices: []*pluginapi.DeviceSpec{
			{ContainerPath: "/dev/x", HostPath: "/dev/x0", Permissions: "rw"}, {ContainerPath: "/dev/x",
				HostPath: "/dev/x1"}, {ContainerPath: "/dev/y", HostPath: "/dev/x0"},
		},
		Mounts: []*pluginapi.Mount{
			{ContainerPath: "/lib", HostPath: "/opt/lib", ReadOnly: true},
			{ContainerPath: "/lib", HostPath: "/opt/lib64"},
		},
		CdiDevices: []*pluginapi.CDIDevice{{Name: "a.b/c=0"}, {Name: "a.b/c=1"}, {Name: "a.b/c=0"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(answer)
	want := device.Allocation{
		Envs: map[string]string{"A": "1"}, Annotations: map[string]string{"a.b/c": "d"},
		Devices: []device.HostDevice{{HostPath: "/dev/x0", ContainerPath: "/dev/x", Permissions: "rw"},
			{HostPath: "/dev/x0", ContainerPath: "/dev/y"}},
		Mounts:     []device.HostMount{{HostPath: "/opt/lib", ContainerPath: "/lib", Readonly: true}},
		CDIDevices: []string{"a.b/c=0", "a.b/c=1"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if _, err := Decode([]byte("garbage")); !errors.Is(err, errAnswer) {
		t.Errorf("garbage was read: %v", err)
	}
}

func FuzzDecodeNeverNamesAContainerPathTwice(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x1a\x08\x0a\x02/x\x12\x02/y\x1a\x08\x0a\x02/x\x12\x02/z"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		allocation, err := Decode(answer)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, d := range allocation.Devices {
			if seen[d.ContainerPath] {
				t.Errorf("%q stands twice", d.ContainerPath)
			}
			seen[d.ContainerPath] = true
		}
	})
}

func FuzzStateFileRoundTrip(f *testing.F) {
	f.Add(
		[]byte(
			`{"devices":["resource/group/numa/0/intel.com:qat/a/device","resource/group/numa/none/nvidia.com:gpu/b/device"]}`))
	f.Add([]byte(
		`{"devices":["resource/group/numa/0/intel.com:qat/a/device","resource/group/numa/1/intel.com:qat/a/device"]}`))
	f.Add([]byte(`{"devices":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		devices, _, err := decodeState(raw)
		if err != nil {
			return
		}
		h := New(Options{})
		for name, list := range devices {
			r := h.resource(name)
			r.devices = list
		}
		content, _ := h.content()
		var text []string
		for _, name := range content.Devices {
			text = append(text, fmt.Sprintf("%q", name))
		}
		again, _, err := decodeState([]byte(`{"devices":[` + strings.Join(text, ",") + `]}`))
		if diff := cmp.Diff(devices, again, cmp.AllowUnexported(entry{})); err != nil || diff != "" {
			t.Errorf("%v, read back (-first +second):\n%s", err, diff)
		}
	})
}
