// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
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

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/test/await"
)

// Directories where device plugins register: kubecri's and the kubelet's own.
const (
	atKubecri = stateDir + "/device-plugins"
	atKubelet = "/var/lib/kubelet/device-plugins"
)

// plugins are attempts of a process that may use the directory of the kubelet's device plugins.
// Without the defence it uses the kubelet's own directory, where the same is accepted.
func plugins() []*Attempt {
	many := make([]*pluginapi.Device, 10_001)
	for i := range many {
		many[i] = fakeplugin.Device(fmt.Sprintf("d%d", i))
	}
	list := func(id, what, refusal string, devices ...*pluginapi.Device) *Attempt {
		try := func(directory string) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				stop, err := s.serve(ctx, directory, s.resource()+".sock", devices...)
				if err != nil {
					return Got{}, err
				}
				defer stop()
				if got, err := s.register(ctx, directory, s.resource()+".sock"); err != nil || got.Outcome != "" {
					return got, err
				}
				return s.offered(ctx, refusal)
			}
		}
		return &Attempt{
			ID: id, Who: Plugin, What: what, Defence: Checks, Try: try(atKubecri),
			Want: everywhere(RefusedByNode, refusal), Off: Off{How: "at the kubelet's own socket", Try: try(atKubelet)},
		}
	}
	outside := func(directory string) Try {
		return func(ctx context.Context, s *Stage) (Got, error) {
			endpoint := "../" + s.resource() + ".sock"
			stop, err := s.serve(ctx, directory, endpoint, fakeplugin.Device("d"))
			if err != nil {
				return Got{}, err
			}
			defer stop()
			if got, err := s.register(ctx, directory, endpoint); err != nil || got.Outcome != "" {
				return got, err
			}
			return s.offered(ctx, "none")
		}
	}
	return []*Attempt{
		{
			ID: "plugin-outside", Who: Plugin, What: "registers a socket outside the directory", Defence: Checks,
			Try: outside(atKubecri), Sample: true,
			Want: everywhere(RefusedByNode, "is not the name of a plugin's socket"),
			Off:  Off{How: "at the kubelet's own socket", Try: outside(atKubelet)},
		},
		{
			ID: "plugin-grant", Who: Plugin,
			What: "registers with the kubelet and gives its containers kubecri's own " +
				"annotation", Defence: MAC, Try: annotates(forged, atKubelet, grants.Annotation, forgedGrant),
			Want: everywhere(RefusedByNode, "which only kubecri writes"),
			Off: Off{How: "the kubelet calls the runtime without kubecri",
				Try: annotates(withoutKubecri, atKubelet, grants.Annotation, forgedGrant)},
		},
		{
			ID: "plugin-annotation", Who: Plugin,
			What:    "gives its containers an annotation of 30 KiB, for the list of containers to grow",
			Defence: Bounds, Try: annotates(forged, atKubecri, "attack.example/x", longAnnotation),
			Want: everywhere(RefusedByNode, "at most 8192"),
			Off: Off{How: "at the kubelet's own socket",
				Try: annotates(forged, atKubelet, "attack.example/x", longAnnotation)},
		},
		{
			ID: "plugin-resources", Who: Plugin, What: "registers 2,000 resources, each a connection", Defence: Bounds,
			Alone: true,
			Try:   registersMany(atKubecri), Want: everywhere(RefusedByNode, "kubecri serves no more at one socket"),
			Off: Off{How: "at the kubelet's own socket", Try: registersMany(atKubelet)},
		},
		list("plugin-no-id", "lists a device without an ID", "has an empty ID", fakeplugin.Device("")),
		list("plugin-many", "lists 10,001 devices", "more than 10000", many...),
	}
}

// registersMany registers resources of one plugin until that is refused.
func registersMany(directory string) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		endpoint := s.resource() + ".sock"
		stop, err := s.serve(ctx, directory, endpoint, fakeplugin.Device("d"))
		if err != nil {
			return Got{}, err
		}
		defer stop()
		const count = 2000
		for i := range count {
			resource := fmt.Sprintf("attack.example/%s-%d", s.resource(), i)
			if got, err := s.registerAs(ctx, forged, directory, endpoint, resource); err != nil || got.Outcome != "" {
				return got, err
			}
		}
		return Got{Succeeds, fmt.Sprintf("%d resources are registered", count)}, nil
	}
}

// forgedGrant is an annotation of kubecri's, which could count as a grant after a restart.
func forgedGrant(s *Stage) string { return s.allocation("forged") }

func longAnnotation(*Stage) string { return strings.Repeat("x", 30<<10) }

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
