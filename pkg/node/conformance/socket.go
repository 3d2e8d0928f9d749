// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// kindKubelet is a plugin that speaks the kubelet's device-plugin API.
const kindKubelet = "kubelet device plugin"

// socketPlugin is a kubelet device plugin that is tested.
type socketPlugin struct {
	ctx     context.Context
	options Options
	path    string
	conn    *grpc.ClientConn
	client  pluginapi.DevicePluginClient

	unrepaired error // why a device may still be broken
}

// Socket tests the kubelet device plugin that serves at the path of a socket. The plugin feeds one
// client: no kubelet may use it meanwhile. The error is ctx's, and then also says if a device may
// still be broken.
func Socket(ctx context.Context, path string, options Options) (*Report, error) {
	p := &socketPlugin{ctx: ctx, options: options, path: path}
	if err := p.connect(); err != nil {
		return nil, err
	}
	defer func() { _ = p.conn.Close() }()
	report, passed := &Report{}, needs{}
	for _, c := range socketChecks() {
		if ctx.Err() != nil {
			return report, errors.Join(ctx.Err(), p.unrepaired)
		}
		o, missing := passed.missing(c.needs)
		if !missing {
			o = c.perform(p)
		}
		passed.note(c.name, o.Status, c.needs)
		report.Results = append(report.Results, Result{
			Plugin: path, Kind: kindKubelet, Check: c.name, About: c.about, Status: o.Status,
			Reason: o.Reason, Fix: o.Fix,
		})
		if o.Status == Failed && c.name != answersCheck && !p.answersAgain() {
			passed.note(answersCheck, Failed, nil) // the rest needs it
		}
	}
	return report, nil
}

// connect makes a connection, which is made again whenever it breaks.
func (p *socketPlugin) connect() (err error) {
	p.conn, err = grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.path)
		}))
	if err == nil {
		p.client = pluginapi.NewDevicePluginClient(p.conn)
	}
	return err
}

// rpc makes a call of the plugin.
func rpc[T any](
	p *socketPlugin, method string, limit time.Duration, do func(ctx context.Context) (T, error),
) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	answer, err := do(ctx)
	switch status.Code(err) {
	case codes.OK:
		return answer, nil
	case codes.DeadlineExceeded:
		return answer, fmt.Errorf("%s: no answer within %v", method, limit)
	case codes.Unavailable:
		return answer, fmt.Errorf("%s: the plugin does not answer, or has ended: %s", method,
			status.Convert(err).Message())
	default:
		return answer, &refusedBy{method, errors.New(status.Convert(err).Message())}
	}
}

// pluginOptions calls GetDevicePluginOptions.
func (p *socketPlugin) pluginOptions() (*pluginapi.DevicePluginOptions, error) {
	return rpc(p, "GetDevicePluginOptions", p.options.Limits.Update,
		func(ctx context.Context) (*pluginapi.DevicePluginOptions, error) {
			return p.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true))
		})
}

// answersAgain reports whether the plugin answers, or does within some time after it ended.
func (p *socketPlugin) answersAgain() bool {
	_, err := p.pluginOptions()
	return err == nil
}

// watch calls each with the lists of a new stream, until it returns true or the time is up.
func (p *socketPlugin) watch(limit time.Duration, each func([]*pluginapi.Device) bool) error {
	_, err := rpc(p, "ListAndWatch", limit, func(ctx context.Context) (struct{}, error) {
		stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{})
		if err != nil {
			return struct{}{}, err
		}
		for {
			list, err := stream.Recv()
			if err != nil || each(list.GetDevices()) {
				return struct{}{}, err
			}
		}
	})
	return err
}

// list returns the first list of a new stream.
func (p *socketPlugin) list() (listed []*pluginapi.Device, err error) {
	err = p.watch(p.options.Limits.Update, func(list []*pluginapi.Device) bool { listed = list; return true })
	return listed, err
}

// healthyIDs returns the IDs of devices that can be allocated.
func healthyIDs(list []*pluginapi.Device) (ids []string) {
	for _, d := range list {
		if d.GetHealth() == pluginapi.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	slices.Sort(ids)
	return ids
}

// available returns the IDs of some devices, of which there must be one.
func (p *socketPlugin) available() ([]string, error) {
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	ids := healthyIDs(list)
	if len(ids) == 0 {
		return nil, notApplicable("the plugin lists no healthy device")
	}
	return ids[:min(len(ids), maxDevices)], nil
}

// allocate returns what the plugin answers for containers with these devices.
func (p *socketPlugin) allocate(containers ...[]string) ([]device.Allocation, error) {
	request := &pluginapi.AllocateRequest{}
	for _, ids := range containers {
		request.ContainerRequests = append(request.ContainerRequests,
			&pluginapi.ContainerAllocateRequest{DevicesIds: ids})
	}
	response, err := rpc(p, "Allocate", p.options.Limits.Allocate,
		func(ctx context.Context) (*pluginapi.AllocateResponse, error) { return p.client.Allocate(ctx, request) })
	if err != nil {
		return nil, err
	}
	if got := len(response.GetContainerResponses()); got != len(containers) {
		return nil, fmt.Errorf("Allocate gives %d answers for %d containers", got, len(containers))
	}
	var answers []device.Allocation
	for _, one := range response.GetContainerResponses() {
		answers = append(answers, allocationOf(one))
	}
	return answers, nil
}

// one is allocate for one container.
func (p *socketPlugin) one(ids ...string) (device.Allocation, error) {
	answers, err := p.allocate(ids)
	if err != nil {
		return device.Allocation{}, err
	}
	return answers[0], nil
}

// allocationOf returns an answer as the SDK has it.
func allocationOf(answer *pluginapi.ContainerAllocateResponse) device.Allocation {
	a := device.Allocation{Envs: answer.GetEnvs(), Annotations: answer.GetAnnotations()}
	for _, d := range answer.GetDevices() {
		a.Devices = append(a.Devices, device.HostDevice{
			HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions(),
		})
	}
	for _, m := range answer.GetMounts() {
		a.Mounts = append(a.Mounts, device.HostMount{
			HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Readonly: m.GetReadOnly(),
		})
	}
	for _, d := range answer.GetCdiDevices() {
		a.CDIDevices = append(a.CDIDevices, d.GetName())
	}
	return a
}

// mergedAsKubelet is merged for an answer that names paths as it does to the kubelet.
func mergedAsKubelet(answer device.Allocation) error {
	_, _, err := inject.Merge(inject.OS{}, &runtimeapi.ContainerConfig{},
		[]inject.Addition{{Allocation: answer, KubeletPaths: true}})
	return errors.Unwrap(err)
}

// checkList returns why a list of devices cannot be used, or nil.
func checkList(list []*pluginapi.Device) error {
	seen := map[string]bool{}
	for i, d := range list {
		id := d.GetID()
		switch {
		case id == "":
			return fmt.Errorf("device %d of %d has an empty ID", i+1, len(list))
		case seen[id]:
			return fmt.Errorf("device %q is there twice", id)
		case d.GetHealth() != pluginapi.Healthy && d.GetHealth() != pluginapi.Unhealthy:
			return fmt.Errorf("device %q has the health %q: it must be %s or %s", id, d.GetHealth(), pluginapi.Healthy,
				pluginapi.Unhealthy)
		}
		seen[id] = true
		numa := []int{}
		for _, node := range d.GetTopology().GetNodes() {
			numa = append(numa, int(node.GetID()))
		}
		if _, err := kubeletdevice.Name(kubeletdevice.Device{Resource: "vendor.example/device", ID: id,
			NUMA: numa}); err != nil {
			return err
		}
	}
	return nil
}

// sameDevices returns how two lists differ in devices, health or topology, or nil. The order of a
// list means nothing.
func sameDevices(a, b []*pluginapi.Device) error {
	say := func(list []*pluginapi.Device) (lines []string) {
		for _, d := range list {
			line := d.GetID() + " " + d.GetHealth() + " on NUMA nodes"
			for _, node := range d.GetTopology().GetNodes() {
				line += fmt.Sprintf(" %d", node.GetID())
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		return lines
	}
	if before, after := say(a), say(b); !slices.Equal(before, after) {
		return fmt.Errorf("it lists %s, then %s", brief(strings.Join(before, ", ")), brief(strings.Join(after, ", ")))
	}
	return nil
}
