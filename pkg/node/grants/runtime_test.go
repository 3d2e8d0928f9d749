// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// lister is a runtime that only lists.
type lister struct {
	runtimeapi.RuntimeServiceClient
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	streams    bool // one object in each message
	err        error
}

// messageLimit is the longest message that containerd sends.
const messageLimit = 16 << 20

// fit returns an error if an answer is too long.
func fit(answer proto.Message) error {
	if size := proto.Size(answer); size > messageLimit {
		return status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d)", size)
	}
	return nil
}

func (l lister) ListContainers(
	_ context.Context, request *runtimeapi.ListContainersRequest, _ ...grpc.CallOption,
) (*runtimeapi.ListContainersResponse, error) {
	answer := &runtimeapi.ListContainersResponse{}
	for _, c := range l.containers {
		filter := request.GetFilter()
		if filter.GetState() != nil && filter.GetState().GetState() != c.GetState() ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.GetPodSandboxId() {
			continue
		}
		answer.Containers = append(answer.Containers, c)
	}
	return answer, fit(answer)
}

func (l lister) ListPodSandbox(
	_ context.Context, request *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption,
) (*runtimeapi.ListPodSandboxResponse, error) {
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range l.sandboxes {
		if state := request.GetFilter().GetState(); state == nil || state.GetState() == s.GetState() {
			answer.Items = append(answer.Items, s)
		}
	}
	return answer, cmp.Or(l.err, fit(answer))
}

var errNoStreams = status.Error(codes.Unimplemented, "it has no streams")

func (l lister) StreamContainers(
	context.Context, *runtimeapi.StreamContainersRequest, ...grpc.CallOption,
) (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error) {
	if !l.streams {
		return nil, errNoStreams
	}
	answers := &messages[runtimeapi.StreamContainersResponse]{}
	for i := range l.containers {
		answers.left = append(answers.left,
			&runtimeapi.StreamContainersResponse{Containers: l.containers[i : i+1]})
	}
	return answers, nil
}

func (l lister) StreamPodSandboxes(
	context.Context, *runtimeapi.StreamPodSandboxesRequest, ...grpc.CallOption,
) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error) {
	if !l.streams {
		return nil, errNoStreams
	}
	answers := &messages[runtimeapi.StreamPodSandboxesResponse]{}
	for i := range l.sandboxes {
		answers.left = append(answers.left,
			&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: l.sandboxes[i : i+1]})
	}
	return answers, nil
}

// messages is a stream of these messages.
type messages[Message any] struct {
	grpc.ClientStream
	left []*Message
}

// Recv implements grpc.ServerStreamingClient.
func (m *messages[Message]) Recv() (*Message, error) {
	if len(m.left) == 0 {
		return nil, io.EOF
	}
	next := m.left[0]
	m.left = m.left[1:]
	return next, nil
}

// Pods of a tenant that have finished, with annotations, must not keep others from their devices.
func TestListsThatAreLongerThanAMessageAreRead(t *testing.T) {
	l := lister{
		containers: []*runtimeapi.Container{
			{
				Id: "c1", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 1},
				State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			},
			{
				Id: "c0", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
				State:       runtimeapi.ContainerState_CONTAINER_EXITED,
				Annotations: map[string]string{Annotation: "carried"},
			},
		},
		sandboxes: []*runtimeapi.PodSandbox{
			{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "default", Name: "pod-u"}},
		},
	}
	large := map[string]string{"note": strings.Repeat("x", 200<<10)}
	for i := range messageLimit / (200 << 10) {
		id := fmt.Sprint("finished-", i)
		l.containers = append(l.containers, &runtimeapi.Container{
			Id: id, PodSandboxId: id, State: runtimeapi.ContainerState_CONTAINER_EXITED, Annotations: large,
		}, &runtimeapi.Container{
			Id: id + "-2", PodSandboxId: id, State: runtimeapi.ContainerState_CONTAINER_EXITED, Annotations: large,
		})
		l.sandboxes = append(l.sandboxes, &runtimeapi.PodSandbox{
			Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: id}, Annotations: large,
			State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		}, &runtimeapi.PodSandbox{
			Id: id + "-2", Metadata: &runtimeapi.PodSandboxMetadata{Uid: id}, Annotations: large,
			State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		})
	}
	for name, streams := range map[string]bool{"as streams": true, "in messages": false} {
		l.streams = streams
		pods, err := cri{l}.Pods(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pod := pods["u"]
		slices.SortFunc(pod.Containers, compareCreation)
		if !pod.Live || pod.Name != "pod-u" || len(pod.Containers) != 2 || pod.Containers[0].Encoded != "carried" {
			t.Errorf("%s: %+v", name, pod)
		}
		if finished := pods["finished-0"]; finished.Live {
			t.Errorf("%s: %+v", name, finished)
		}
	}
}

func TestAPodIsLiveWhileItHasAReadySandboxOrLiveContainer(t *testing.T) {
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
			{ID: "1", Name: "main", Attempt: 3, Created: at, Encoded: "anything"}, {ID: "2", Name: "side", Created: at},
		}},
		"gone": {Live: false},
	}
	if diff := gocmp.Diff(want, pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARuntimeThatDoesNotListIsAnError(t *testing.T) {
	away := errors.New("away")
	if _, err := (cri{lister{err: away}}).Pods(context.Background()); !errors.Is(err, away) {
		t.Errorf("got %v, want %v", err, away)
	}
}
