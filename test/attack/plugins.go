// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/test/await"
)

// atKubelet is the kubelet's own directory, where device plugins register.
const atKubelet = "/var/lib/kubelet/device-plugins"

// registerPlugin serves a plugin with devices, and registers it. It succeeds if the node counts
// them, unless kubecri says with this refusal why it does not.
func registerPlugin(ctx context.Context, p *trial, arguments struct {
	Directory string  `json:"directory"`
	Endpoint  string  `json:"endpoint"`
	Device    *string `json:"device"`
	Devices   int     `json:"devices"`
	Refusal   string  `json:"refusal"`
}) (Got, error) {
	devices := []*pluginapi.Device{fakeplugin.Device(ptr.Deref(arguments.Device, "d"))}
	if arguments.Devices > 0 {
		devices = nil
	}
	for i := range arguments.Devices {
		devices = append(devices, fakeplugin.Device(fmt.Sprintf("d%d", i)))
	}
	stop, err := p.serve(ctx, arguments.Directory, arguments.Endpoint, devices...)
	if err != nil {
		return Got{}, err
	}
	defer stop()
	got, err := p.register(ctx, arguments.Directory, arguments.Endpoint)
	if err != nil || got.Outcome != "" {
		return got, err
	}
	return p.offered(ctx, cmp.Or(arguments.Refusal, "none"))
}

// registerManyPlugins registers resources of one plugin until that is refused.
func registerManyPlugins(ctx context.Context, p *trial, arguments struct {
	Directory string `json:"directory"`
}) (Got, error) {
	directory := arguments.Directory
	endpoint := p.resource() + ".sock"
	stop, err := p.serve(ctx, directory, endpoint, fakeplugin.Device("d"))
	if err != nil {
		return Got{}, err
	}
	defer stop()
	const count = 2000
	for i := range count {
		resource := fmt.Sprintf("attack.example/%s-%d", p.resource(), i)
		if got, err := p.registerAs(ctx, forged, directory, endpoint, resource); err != nil || got.Outcome != "" {
			return got, err
		}
	}
	return Got{Succeeds, fmt.Sprintf("%d resources are registered", count)}, nil
}

// resource is the base name of the attempt's extended resource.
func (s *Stage) resource() string { return s.attempt.ID }

// serve serves a device plugin at a socket in a directory of the node forged, until stop.
func (s *Stage) serve(_ context.Context, directory, endpoint string, devices ...*pluginapi.Device) (stop func(),
	err error) {
	plugin := fakeplugin.New(devices...)
	err = s.node(forged).Sandbox().Do(func() error {
		_, err := plugin.Serve(path.Join(directory, endpoint))
		return err
	})
	return plugin.Stop, err
}

// register registers a plugin for the attempt's resource. It returns nothing if that is accepted.
func (s *Stage) register(ctx context.Context, directory, endpoint string) (Got, error) {
	return s.registerOn(ctx, forged, directory, endpoint)
}

// registerOn is register on any node.
func (s *Stage) registerOn(ctx context.Context, node int, directory, endpoint string) (Got, error) {
	return s.registerAs(ctx, node, directory, endpoint, "attack.example/"+s.resource())
}

// registerAs is registerOn for any resource.
func (s *Stage) registerAs(ctx context.Context, node int, directory, endpoint, resource string) (Got, error) {
	conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return s.node(node).Sandbox().Dial(ctx, "unix", path.Join(directory, "kubelet.sock"))
		}))
	if err != nil {
		return Got{}, err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: resource,
	})
	if err == nil {
		return Got{}, nil
	}
	if _, ok := status.FromError(err); !ok {
		return Got{}, err
	}
	return Got{RefusedByNode, err.Error()}, nil
}

// offered waits until the node forged counts devices of the attempt's resource, or kubecri says
// with this refusal why it does not.
func (s *Stage) offered(ctx context.Context, refusal string) (got Got, err error) {
	what := "node " + s.node(forged).Name + " to count " + s.resource()
	err = await.Until(ctx, what, func(ctx context.Context) (bool, error) {
		node, err := s.admin.CoreV1().Nodes().Get(ctx, s.node(forged).Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		counted := node.Status.Allocatable[corev1.ResourceName("attack.example/"+s.resource())]
		if !counted.IsZero() {
			got = Got{Succeeds, "the node counts " + counted.String()}
			return true, nil
		}
		content, err := s.node(forged).Get(ctx, "/readyz")
		for line := range strings.Lines(content) {
			if strings.Contains(line, s.resource()) && strings.Contains(line, refusal) {
				got = Got{RefusedByNode, line}
				return true, nil
			}
		}
		return false, err
	})
	return got, err
}
