// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAContainerGetsWhatThePluginSaysAndCarriesItsPodsDecision(t *testing.T) {
	b := newBench(t, true)
	b.pods["u"] = pods.Pod{Namespace: "default", Containers: []pods.Container{{Name: "main"}}, Asks: asking.Asks}
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card1}})
	got, err := b.create(t, "u", "main", "api", annotations)
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/gpu1", HostPath: "/dev/gpu1", Permissions: "mrw"}},
		Annotations: map[string]string{grants.Annotation: annotations[deviceinfo.Annotation]},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAPluginThatFailsIsTriedAgain(t *testing.T) {
	b := newBench(t, true)
	b.pods["u"] = asking
	b.plugin.err = errors.New("driver is loading")
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})
	if _, err := b.create(t, "u", "main", "api", annotations); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "driver is loading") {
		t.Errorf("got %v", err)
	}
	b.plugin.err = nil
	if _, err := b.create(t, "u", "main", "api", annotations); err != nil {
		t.Errorf("again: %v", err)
	}
}
