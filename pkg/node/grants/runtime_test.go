// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// lister is a runtime that only lists.
type lister struct {
	runtimeapi.RuntimeServiceClient
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	err        error
}

func (l lister) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
	...grpc.CallOption,
) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: l.containers}, nil
}

func (l lister) ListPodSandbox(
	context.Context,
	*runtimeapi.ListPodSandboxRequest,
	...grpc.CallOption,
) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: l.sandboxes}, l.err
}

func TestWhoLivesInTheRuntime(t *testing.T) {
	decision := wants("u", map[types.ResourceName]int64{cards0: 1}).PodInfo
	carried, err := deviceinfo.EncodePod(decision)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{labelPodUID: "u", labelPodNamespace: "default", labelPodName: "pod-u"}
	container := func(state runtimeapi.ContainerState, annotations map[string]string) *runtimeapi.Container {
		return &runtimeapi.Container{Id: "c", State: state, Labels: labels, Annotations: annotations}
	}
	sandbox := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}, State: state}
	}
	const (
		created         = runtimeapi.ContainerState_CONTAINER_CREATED
		running         = runtimeapi.ContainerState_CONTAINER_RUNNING
		exited          = runtimeapi.ContainerState_CONTAINER_EXITED
		unknown         = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	)
	for name, test := range map[string]struct {
		lister      lister
		live, grant bool
	}{
		"a ready sandbox without containers": {
			lister: lister{sandboxes: []*runtimeapi.PodSandbox{sandbox(ready)}}, live: true,
		},
		"a stopped sandbox without containers": {
			lister: lister{sandboxes: []*runtimeapi.PodSandbox{sandbox(notReady)}},
		},
		"a running container in a stopped sandbox": {
			lister: lister{
				containers: []*runtimeapi.Container{container(running, nil)},
				sandboxes:  []*runtimeapi.PodSandbox{sandbox(notReady)},
			},
			live: true,
		},
		"a container in an unknown state": {
			lister: lister{containers: []*runtimeapi.Container{container(unknown, nil)}}, live: true,
		},
		"a container that can never start": {
			lister: lister{
				containers: []*runtimeapi.Container{container(created, nil)},
				sandboxes:  []*runtimeapi.PodSandbox{sandbox(notReady)},
			},
		},
		"a container between two runs": {
			lister: lister{
				containers: []*runtimeapi.Container{container(exited, nil)},
				sandboxes:  []*runtimeapi.PodSandbox{sandbox(ready)},
			},
			live: true,
		},
		"an old stopped sandbox beside a new one": {
			lister: lister{sandboxes: []*runtimeapi.PodSandbox{sandbox(ready), sandbox(notReady)}}, live: true,
		},
		"a container that carries its grant": {
			lister: lister{
				containers: []*runtimeapi.Container{container(running, map[string]string{Annotation: carried})},
			},
			live: true, grant: true,
		},
		"the grant is on any of the containers": {
			lister: lister{
				containers: []*runtimeapi.Container{
					container(running, nil), container(exited, map[string]string{Annotation: carried}),
				},
			},
			live: true, grant: true,
		},
		"a grant that cannot be read leaves the pod living": {
			lister: lister{containers: []*runtimeapi.Container{container(running, map[string]string{Annotation: "{"})}},
			live:   true,
		},
	} {
		pods, err := cri{test.lister}.Pods(context.Background())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := pods["u"]
		if got.Live != test.live || (got.Allocation != nil) != test.grant {
			t.Errorf("%s: live %v, grant %v; want %v, %v", name, got.Live, got.Allocation, test.live, test.grant)
		}
		if test.grant &&
			(got.Allocation.Pod() != "default/pod-u" ||
				!cmp.Equal(got.Allocation.Holds(), (&Allocation{PodInfo: decision}).Holds())) {
			t.Errorf("%s: grant %v", name, got.Allocation)
		}
	}
}

func TestARuntimeThatDoesNotListIsAnError(t *testing.T) {
	away := errors.New("away")
	if _, err := (cri{lister{err: away}}).Pods(context.Background()); !errors.Is(err, away) {
		t.Errorf("got %v, want %v", err, away)
	}
}
