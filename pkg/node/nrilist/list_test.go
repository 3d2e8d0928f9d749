// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrilist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// runtime is a container runtime behind a connection: container c<i> has that many bytes of
// variables, and is in the sandbox s.
type runtime struct {
	variables []int
	states    map[string]runtimeapi.ContainerState // running by default
	listed    int                                  // bytes of each container's annotations in the list
	info      func(id string) string               // if set, the verbose status
	groups    []uint32                             // of each container
	labels    map[string]string                    // of each container, by containerd's API; nil for CRI-O
	unlabeled error                                // of containerd's API, if set

	mu      sync.Mutex
	queried []string // containers
}

func (r *runtime) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "it has no streams")
}

func (r *runtime) Invoke(ctx context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	switch request := request.(type) {
	case *runtimeapi.ListContainersRequest:
		answer := &runtimeapi.ListContainersResponse{Containers: r.containers(request.GetFilter())}
		if size := proto.Size(answer); size > message {
			return status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d)", size)
		}
		proto.Merge(reply.(proto.Message), answer)
	case *runtimeapi.ListPodSandboxRequest:
		proto.Merge(reply.(proto.Message), &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{
			Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "u"},
			Annotations: map[string]string{"a": "b"},
		}}})
	case *runtimeapi.ContainerStatusRequest:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queried = append(r.queried, request.GetContainerId())
		return r.status(request, reply.(proto.Message))
	case *containers.GetContainerRequest:
		switch {
		case r.unlabeled != nil:
			return r.unlabeled
		case r.labels == nil:
			return status.Errorf(codes.Unimplemented, "it has no %s", method)
		}
		if outgoing, _ := metadata.FromOutgoingContext(ctx); !slices.Equal(outgoing["containerd-namespace"],
			[]string{"k8s.io"}) {
			return status.Error(codes.NotFound, "not in that namespace")
		}
		proto.Merge(reply.(proto.Message), &containers.GetContainerResponse{
			Container: &containers.Container{ID: request.GetID(), Labels: r.labels},
		})
	default:
		return fmt.Errorf("it has no %s", method)
	}
	return nil
}

// message is the longest message of gRPC that the runtime sends.
const message = 16 << 20

func (r *runtime) containers(filter *runtimeapi.ContainerFilter) (list []*runtimeapi.Container) {
	for i := range r.variables {
		id := fmt.Sprint("c", i)
		state, set := r.states[id]
		if !set {
			state = runtimeapi.ContainerState_CONTAINER_RUNNING
		}
		if wanted := filter.GetState(); wanted != nil && wanted.GetState() != state {
			continue
		}
		list = append(list, &runtimeapi.Container{
			Id: id, PodSandboxId: "s", State: state, CreatedAt: 7,
			Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
			Annotations: map[string]string{"large": strings.Repeat("x", r.listed)},
		})
	}
	return list
}

// longest is how many bytes of variables the runtime describes.
const longest = 2_000_000

func (r *runtime) status(request *runtimeapi.ContainerStatusRequest, reply proto.Message) error {
	var i int
	if _, err := fmt.Sscanf(request.GetContainerId(), "c%d", &i); err != nil || !request.GetVerbose() {
		return status.Error(codes.InvalidArgument, "no container, or not verbose")
	}
	switch {
	case r.variables[i] < 0:
		return status.Error(codes.NotFound, "it is gone")
	case r.variables[i] > longest:
		return status.Error(codes.ResourceExhausted, "received message larger than max")
	}
	info, err := json.Marshal(map[string]any{"sandboxID": "s", "runtimeSpec": specs.Spec{
		Process: &specs.Process{
			User: specs.User{AdditionalGids: r.groups},
			Args: []string{"sleep"}, Env: []string{"V=" + strings.Repeat("<", r.variables[i])},
		},
		Linux: &specs.Linux{Resources: &specs.LinuxResources{
			Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}},
		}},
		Annotations: map[string]string{"of": "the runtime"},
	}})
	if err != nil {
		return err
	}
	if r.info != nil {
		info = []byte(r.info(request.GetContainerId()))
	}
	proto.Merge(reply, &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{
			Id: request.GetContainerId(), Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Annotations: map[string]string{"of": "the kubelet"}, ImageId: "sha256:0",
		},
		Info: map[string]string{"info": string(info)},
	})
	return nil
}

func TestTheListHasTheSizesOfWhatThePluginsWillGet(t *testing.T) {
	r := &runtime{
		variables: []int{1000, 200_000, -1, 5},
		states:    map[string]runtimeapi.ContainerState{"c3": runtimeapi.ContainerState_CONTAINER_EXITED},
	}
	source := New(r)
	list, err := source.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Sandboxes) != 1 || len(list.Containers) != 3 {
		t.Fatalf("%d sandboxes, %d containers", len(list.Sandboxes), len(list.Containers))
	}
	for i, least := range []int{1000, 200_000, 0} {
		if size := list.Containers[i].Size.Bytes; size < least || size > least+200 {
			t.Errorf("container %d has %d bytes, want little more than %d", i, size, least)
		}
	}
	if size := list.Sandboxes[0].Size.Bytes; size < 4<<10 { // for what the CRI does not list
		t.Errorf("the sandbox has %d bytes", size)
	}
	if pod := list.SandboxOf(list.Containers[0]).Pod().String(); pod != "default/pod" {
		t.Errorf("the pod is %s", pod)
	}
	if err := list.Check(); err != nil {
		t.Error(err)
	}
}

func TestTheLabelsOfTheImageAndTheGroupsOfTheUserCount(t *testing.T) {
	r := &runtime{variables: []int{10}, labels: map[string]string{}}
	for i := range 100 {
		r.labels[fmt.Sprint("label", i)] = strings.Repeat("x", 4000)
	}
	for i := range uint32(1000) {
		r.groups = append(r.groups, 1<<31+i)
	}
	list, err := New(r).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const least = 100*4000 + 1000*5
	if size := list.Containers[0].Size.Bytes; size < least || size > least+3000 {
		t.Errorf("the container has %d bytes, want little more than %d", size, least)
	}
}

func TestTheLabelsOfTheImageCountAlsoWhereTheRestIsTooLarge(t *testing.T) {
	labels := map[string]string{"of the image": strings.Repeat("x", 4000)}
	r := &runtime{variables: []int{nribound.MaxObject}, labels: labels}
	list, err := New(r).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if size := list.Containers[0].Size.Bytes; size < nribound.MaxObject+4000 {
		t.Errorf("the container has %d bytes", size)
	}
}

func TestAContainerHasNoSizeWithoutItsLabelsUnlessTheRuntimeHasNoneToTell(t *testing.T) {
	ofCRIO, err := New(&runtime{variables: []int{10}}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for code, test := range map[codes.Code]struct {
		size  nribound.Size
		fails bool
	}{
		codes.Unimplemented:     {size: ofCRIO.Containers[0].Size},
		codes.NotFound:          {}, // it is gone
		codes.ResourceExhausted: {size: unknown},
		codes.Unavailable:       {fails: true},
		codes.Internal:          {fails: true},
	} {
		t.Run(code.String(), func(t *testing.T) {
			r := &runtime{variables: []int{10}, unlabeled: status.Error(code, "it fails")}
			list, err := New(r).List(t.Context())
			if got := list.Containers[0].Size; (err != nil) != test.fails || got != test.size {
				t.Errorf("the container has the size %v, want %v; %v", got, test.size, err)
			}
		})
	}
}

// A runtime takes as long to describe an image as its author wants.
func TestImagesAreNotRead(t *testing.T) {
	r := &runtime{variables: []int{10}} // it has no ImageStatus
	if list, err := New(r).List(t.Context()); err != nil || list.Containers[0].Size.Bytes < 10 {
		t.Errorf("%v, %v", list.Containers, err)
	}
}

// Without an end of it, one broken container would keep kubecri from being registered.
func TestAContainerWhoseStatusFailsAgainAndAgainCannotBeSent(t *testing.T) {
	for place, id := range []string{"c0", "c1", "c2"} {
		t.Run(id, func(t *testing.T) {
			broken := true
			r := &runtime{variables: []int{10, 20, 30}}
			r.info = func(of string) string {
				if of == id && broken {
					return "{}"
				}
				return `{"sandboxID":"s","runtimeSpec":{}}`
			}
			source := New(r)
			for range attempts {
				if _, err := source.List(t.Context()); err == nil {
					t.Fatal("the container can be measured")
				}
			}
			list, err := source.List(t.Context())
			if err != nil || list.Containers[place].Size != unknown || list.Check() == nil {
				t.Errorf("after %d attempts: %v, %v", attempts, list.Sizes(), err)
			}
			broken = false
			if list, err = source.List(t.Context()); err != nil || list.Check() != nil {
				t.Errorf("when its status works again: %v, %v", list.Sizes(), err)
			}
		})
	}
}

func TestContainersCannotBeMeasuredWhileTheRuntimeFails(t *testing.T) {
	r := &runtime{variables: []int{10}}
	source := New(r)
	if _, err := source.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.variables = append(r.variables, 20, 30)
	r.info = func(string) string { return "{}" }
	for range attempts + 2 {
		if list, err := source.List(t.Context()); err == nil {
			t.Fatalf("the list has the sizes %v", list.Sizes())
		}
	}
}

func TestAContainerThatCannotBeMeasuredCannotBeSent(t *testing.T) {
	list, err := New(&runtime{variables: []int{10, longest + 1}}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Check(); err == nil || list.Containers[1].Size.Bytes <= list.Containers[0].Size.Bytes {
		t.Errorf("%v, %v", list.Sizes(), err)
	}
}

func TestContainersAreQueriedOnce(t *testing.T) {
	r := &runtime{variables: []int{10, 20}}
	source := New(r)
	for range 3 {
		if _, err := source.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(r.variables) == 2 {
			r.variables = append(r.variables, 30)
		}
	}
	if len(r.queried) != 3 {
		t.Errorf("queried for %q", r.queried)
	}
}

func TestAContainerIsDescribedAsTheRuntimeDoes(t *testing.T) {
	c, err := New(&runtime{variables: []int{3}}).Container(t.Context(), "c0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"V=<<<"}, c.GetEnv()); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if c.GetPodSandboxId() != "s" || c.GetName() != "main" || c.GetArgs()[0] != "sleep" {
		t.Errorf("got %v", c)
	}
	if got := c.GetAnnotations()["of"]; got != "the kubelet" {
		t.Errorf("the annotation is of %s", got)
	}
	if devices := c.GetLinux().GetResources().GetDevices(); len(devices) != 1 || !devices[0].GetAllow() {
		t.Errorf("rules for devices: %v", devices)
	}
}

func TestARuntimeThatDoesNotSayWhatAContainerIsIsAnError(t *testing.T) {
	for _, info := range []string{"", "{}", `{"runtimeSpec":[]}`} {
		r := &runtime{variables: []int{1}, info: func(string) string { return info }}
		if _, err := New(r).List(t.Context()); err == nil || !strings.Contains(err.Error(), "runtimeSpec") {
			t.Errorf("%q: %v", info, err)
		}
	}
}

func TestErrorsNameObjectsThatCannotBeSent(t *testing.T) {
	r := &runtime{variables: []int{10, 1_700_000, 1_700_001, 1_700_002}}
	list, err := New(r).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = list.Check()
	if err == nil || strings.Count(err.Error(), `container "main" of pod default/pod (1700`) != named {
		t.Error(err)
	}
}
