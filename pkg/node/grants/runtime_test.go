// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	container := func(state runtimeapi.ContainerState) *runtimeapi.Container {
		return &runtimeapi.Container{
			Id: "c", PodSandboxId: "s", State: state, Labels: map[string]string{labelPodUID: "u"},
		}
	}
	sandbox := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}, State: state}
	}
	const (
		created         = runtimeapi.ContainerState_CONTAINER_CREATED
		running         = runtimeapi.ContainerState_CONTAINER_RUNNING
		exited          = runtimeapi.ContainerState_CONTAINER_EXITED
		unknown         = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	)
	for name, test := range map[string]struct {
		lister lister
		live   bool
	}{
		"a ready sandbox without containers": {
			lister: lister{sandboxes: []*runtimeapi.PodSandbox{sandbox(ready)}}, live: true,
		},
		"a stopped sandbox without containers": {
			lister: lister{sandboxes: []*runtimeapi.PodSandbox{sandbox(notReady)}},
		},
		"a running container in a stopped sandbox": {
			lister: lister{
				containers: []*runtimeapi.Container{container(running)},
				sandboxes:  []*runtimeapi.PodSandbox{sandbox(notReady)},
			},
			live: true,
		},
		"a running container whose sandbox is not listed": {
			lister: lister{containers: []*runtimeapi.Container{container(running)}}, live: true,
		},
		"a container in an unknown state": {
			lister: lister{containers: []*runtimeapi.Container{container(unknown)}}, live: true,
		},
		"a container that can never start": {
			lister: lister{
				containers: []*runtimeapi.Container{container(created)},
				sandboxes:  []*runtimeapi.PodSandbox{sandbox(notReady)},
			},
		},
		"a container between two runs": {
			lister: lister{
				containers: []*runtimeapi.Container{container(exited)},
				sandboxes:  []*runtimeapi.PodSandbox{sandbox(ready)},
			},
			live: true,
		},
		"an old stopped sandbox next to a new one": {
			lister: lister{sandboxes: []*runtimeapi.PodSandbox{sandbox(ready), sandbox(notReady)}}, live: true,
		},
	} {
		pods, err := cri{test.lister}.Pods(context.Background())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := pods["u"]; got.Live != test.live {
			t.Errorf("%s: live %v, want %v", name, got.Live, test.live)
		}
	}
}

// An image that is restored brings labels along, which name any pod; the sandbox is the kubelet's.
func TestAContainerBelongsToThePodOfItsSandboxNotOfItsLabels(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	pods, err := cri{lister{
		containers: []*runtimeapi.Container{
			{
				Id: "1", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 3},
				State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: at.UnixNano(),
				Labels: map[string]string{
					labelPodUID: "victim", "io.kubernetes.pod.name": "victim", "io.kubernetes.pod.namespace": "other",
					"io.kubernetes.container.name": "app",
				},
				Annotations: map[string]string{Annotation: "anything"},
			},
			{
				Id: "2", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "side"},
				CreatedAt: at.UnixNano(),
			},
			{Id: "3", PodSandboxId: "gone", Labels: map[string]string{labelPodUID: "gone"},
				Annotations: map[string]string{Annotation: "anything"}},
			{Id: "4"},
		},
		sandboxes: []*runtimeapi.PodSandbox{{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{
			Uid: "u", Namespace: "default", Name: "pod-u",
		}}},
	}}.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]RuntimeState{
		"u": {Live: true, Namespace: "default", Name: "pod-u", Containers: []RuntimeContainer{
			{ID: "1", Name: "main", Attempt: 3, Created: at, Carried: "anything"}, {ID: "2", Name: "side", Created: at},
		}},
		"gone": {Live: false},
	}
	if diff := cmp.Diff(want, pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARuntimeThatDoesNotListIsAnError(t *testing.T) {
	away := errors.New("away")
	if _, err := (cri{lister{err: away}}).Pods(context.Background()); !errors.Is(err, away) {
		t.Errorf("got %v, want %v", err, away)
	}
}
