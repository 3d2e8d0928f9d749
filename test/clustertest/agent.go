// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// Where an exporter finds the PodResources API on a node: the kubelet's socket, and kubecri's.
const (
	KubeletPodResources = "/var/lib/kubelet/pod-resources/kubelet.sock"
	KubecriPodResources = "/var/lib/kubedevice/pod-resources/kubelet.sock"
)

// NewAgent returns a client of the PodResources API at a socket on the node, as exporters are,
// until the test ends.
func NewAgent(t testing.TB, node *cluster.Node, socket string) podresourcesapi.PodResourcesListerClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return node.Sandbox().Dial(ctx,
				"unix", socket)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return podresourcesapi.NewPodResourcesListerClient(conn)
}
