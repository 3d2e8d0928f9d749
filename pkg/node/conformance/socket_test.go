// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
)

// faultySocket is a kubelet device plugin with at most one fault.
type faultySocket struct {
	pluginapi.UnimplementedDevicePluginServer
	fault, broken string // the file broken has the ID of a device that is broken
	calls         atomic.Int64
	last          atomic.Pointer[[]string]
	serving       sync.WaitGroup
	stop          func()
}

func (f *faultySocket) serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, f)
	f.stop = server.Stop
	f.serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); f.serving.Wait() })
}

func (f *faultySocket) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	if f.fault == "it does not know its options" {
		return nil, errors.New("which options?")
	}
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

func (f *faultySocket) list(call int64) (list []*pluginapi.Device) {
	broken, _ := os.ReadFile(f.broken)
	_, restarted := os.Stat(f.broken + ".restarted")
	for i := range 4 {
		d := fakeplugin.Device(fmt.Sprintf("d%d", i), int64(i/2))
		switch {
		case f.fault == "an ID is there twice" && i == 3:
			d.ID = "d0"
		case f.fault == "a health is no health" && i == 3:
			d.Health = "fine"
		case f.fault == "IDs differ after a restart" && restarted == nil:
			d.ID += "-again"
		case f.fault == "each stream has another list":
			d.ID += fmt.Sprintf("-%d", call)
		case string(broken) == d.ID && f.fault != "a broken device stays healthy":
			d.Health = pluginapi.Unhealthy
		}
		list = append(list, d)
	}
	return list
}

func (f *faultySocket) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	call := f.calls.Add(1)
	var last []*pluginapi.Device
	for {
		list := f.list(call)
		if last == nil || sameDevices(list, last) != nil {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
			last = list
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (f *faultySocket) Allocate(
	ctx context.Context, request *pluginapi.AllocateRequest,
) (*pluginapi.AllocateResponse, error) {
	call := f.calls.Add(1)
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		ids := slices.Clone(container.GetDevicesIds())
		switch {
		case f.fault == "it hangs for many devices" && len(ids) > 1000:
			<-ctx.Done()
			return nil, ctx.Err()
		case f.fault == "it ends for an empty ID" && slices.Contains(ids, ""):
			go f.stop()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		known := func(id string) bool { return len(id) >= 2 && id[0] == 'd' && id[1] >= '0' && id[1] <= '3' }
		if slices.ContainsFunc(ids, func(id string) bool { return !known(id) }) &&
			f.fault != "it accepts an unknown device" {
			return nil, status.Error(codes.NotFound, "no such device")
		}
		answer := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": strings.Join(ids, ",")}}
		switch f.fault {
		case "it gives nothing":
			answer.Envs = nil
		case "the order of the devices is any":
			ids = append(ids[call%int64(max(1, len(ids))):], ids[:call%int64(max(1, len(ids)))]...)
			answer.Envs["DEVICES"] = strings.Join(ids, ",")
		case "calls see each other's devices":
			f.last.Store(&ids)
			time.Sleep(time.Millisecond)
			answer.Envs["DEVICES"] = strings.Join(*f.last.Load(), ",")
		case "answers are numbered":
			answer.Envs["CALL"] = fmt.Sprint(call)
		case "all devices are the same":
			answer.Envs["DEVICES"] = "all"
		case "a path is not there":
			answer.Mounts = []*pluginapi.Mount{{HostPath: "/no/such/file", ContainerPath: "/file"}}
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
		if f.fault == "it answers for the first container alone" {
			break
		}
	}
	return response, nil
}

func (f *faultySocket) GetPreferredAllocation(
	_ context.Context, request *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.GetContainerRequests() {
		chosen := slices.Clone(container.GetMustIncludeDeviceIDs())
		if f.fault == "it prefers others than it must include" {
			chosen = nil
		}
		for _, id := range container.GetAvailableDeviceIDs() {
			if len(chosen) < int(container.GetAllocationSize()) && !slices.Contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return response, nil
}

func (f *faultySocket) PreStartContainer(
	context.Context, *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	if f.fault == "it prepares nothing" {
		return nil, errors.New("the device is not idle")
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// TestEachFaultOfAKubeletDevicePluginFailsOneCheck has one fault at a time.
func TestEachFaultOfAKubeletDevicePluginFailsOneCheck(t *testing.T) {
	tests := map[string]string{
		"none":                                     "",
		"it does not know its options":             "answers",
		"an ID is there twice":                     "inventory",
		"a health is no health":                    "inventory",
		"each stream has another list":             "inventory-stable",
		"a broken device stays healthy":            "health",
		"it gives nothing":                         "allocate-each",
		"it answers for the first container alone": "allocate-all",
		"answers are numbered":                     "allocate-all",
		"the order of the devices is any":          "allocate-same",
		"calls see each other's devices":           "concurrent",
		"IDs differ after a restart":               "restart",
		"all devices are the same":                 "allocate-exact",
		"it accepts an unknown device":             "allocate-unknown",
		"a path is not there":                      "allocate-valid",
		"it prefers others than it must include":   "preferred",
		"it prepares nothing":                      "prestart",
		"it hangs for many devices":                "hostile",
		"it ends for an empty ID":                  "hostile",
	}
	for _, check := range socketChecks() {
		if !slices.Contains(slices.Collect(maps.Values(tests)), check.name) {
			t.Errorf("no fault makes %s fail", check.name)
		}
	}
	for fault, check := range tests {
		t.Run(fault, func(t *testing.T) {
			dir := t.TempDir()
			socket, broken := filepath.Join(dir, "p.sock"), filepath.Join(dir, "broken")
			plugin := &faultySocket{fault: fault, broken: broken}
			plugin.serve(t, socket)
			options := patient()
			options.Break, options.Repair = "printf d1 >"+broken, "rm "+broken
			options.Restart = "touch " + broken + ".restarted"
			report, err := Socket(t.Context(), socket, options)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if check != "" {
				want = []string{kindKubelet + "/" + check}
			}
			if diff := cmp.Diff(want, failures(report)); diff != "" {
				t.Errorf("checks that failed (-want +got):\n%s%s", diff, text(t, report))
			}
			if check == "" && report.Count(OK) != len(socketChecks()) {
				t.Errorf("not all checks applied:\n%s", text(t, report))
			}
		})
	}
}

func TestASocketWithoutAPluginIsReported(t *testing.T) {
	options := patient()
	options.Limits.Update = 100 * time.Millisecond
	report, err := Socket(t.Context(), filepath.Join(t.TempDir(), "none.sock"), options)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{kindKubelet + "/answers"}, failures(report)); diff != "" || report.Count(OK) > 0 {
		t.Errorf("%s%s", diff, text(t, report))
	}
}
