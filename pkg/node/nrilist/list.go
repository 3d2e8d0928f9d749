// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nrilist reads by the CRI what a container runtime sends to NRI plugins that register: all
// its sandboxes, and all containers that have not ended. NRI itself cannot be queried for it, and a
// list that cannot be sent may harm the runtime.
package nrilist

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/crilist"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

const (
	// unlisted is the most that a runtime adds to a sandbox, in bytes, which the CRI does not list:
	// namespaces, resources, addresses, and annotations of its own.
	unlisted = 4 << 10
	// queries is how many containers the runtime is queried for at a time, and longestAnswer the
	// longest answer, in bytes. Decoding one takes several times as much memory. Of what is
	// admitted, a character takes six bytes in it at most, and is in it twice.
	queries, longestAnswer = 2, 8 << 20
	// attempts is how many lists in a row may fail because of one container.
	attempts = 3
)

// Source reads the list of a runtime. All methods are safe for concurrent use.
type Source struct {
	client     runtimeapi.RuntimeServiceClient
	containers containers.ContainersClient // containerd's own API

	mu       sync.Mutex
	sizes    map[string]nribound.Size // of containers that were there last, by ID: none of them changes
	failures map[string]int           // of containers that were there last: lists in a row
}

// New returns the source for the runtime behind conn.
func New(conn grpc.ClientConnInterface) *Source {
	return &Source{
		client: runtimeapi.NewRuntimeServiceClient(conn), containers: containers.NewContainersClient(conn),
		sizes: map[string]nribound.Size{},
	}
}

// List has the sandboxes and containers of a runtime.
type List struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// Sandbox is a sandbox as the runtime describes it to plugins, as far as the CRI has that.
type Sandbox struct {
	*api.PodSandbox
	Created time.Time
	Size    nribound.Size // at most
	Ready   bool          // otherwise no container runs in it, and none is started
}

// Container identifies a container that has not ended.
type Container struct {
	ID, Name string
	Sandbox  string // its ID
	Created  time.Time
	Size     nribound.Size
}

// Sizes returns the list for nribound.
func (l List) Sizes() (sizes nribound.List) {
	for _, s := range l.Sandboxes {
		sizes.Sandboxes = append(sizes.Sandboxes, s.Size.Bytes)
		sizes.Strings += s.Size.Strings
	}
	for _, c := range l.Containers {
		sizes.Containers = append(sizes.Containers, c.Size.Bytes)
		sizes.Strings += c.Size.Strings
	}
	return sizes
}

// List returns the list.
func (s *Source) List(ctx context.Context) (list List, err error) {
	// Those that have ended are not read: their annotations may be longer than a message of gRPC.
	// First those that were not started yet: one that is started meanwhile is in either list.
	listed := map[string]bool{}
	for _, state := range []runtimeapi.ContainerState{
		runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_RUNNING,
	} {
		containers, err := crilist.Containers(ctx, s.client, &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: state},
		})
		if err != nil {
			return List{}, err
		}
		for _, one := range containers {
			if listed[one.GetId()] {
				continue
			}
			listed[one.GetId()] = true
			list.Containers = append(list.Containers, Container{
				ID: one.GetId(), Name: one.GetMetadata().GetName(), Sandbox: one.GetPodSandboxId(),
				Created: time.Unix(0, one.GetCreatedAt()),
			})
		}
	}
	if list.Sandboxes, err = s.Sandboxes(ctx); err != nil {
		return List{}, err
	}
	return list, s.measure(ctx, &list)
}

// Sandboxes returns the runtime's sandboxes. Those of all pods that have ended are among them.
func (s *Source) Sandboxes(ctx context.Context) (sandboxes []Sandbox, err error) {
	listed, err := crilist.Sandboxes(ctx, s.client, nil)
	if err != nil {
		return nil, err
	}
	for _, one := range listed {
		sandbox := &api.PodSandbox{
			Id: one.GetId(), Name: one.GetMetadata().GetName(), Uid: one.GetMetadata().GetUid(),
			Namespace: one.GetMetadata().GetNamespace(), Labels: one.GetLabels(),
			Annotations: one.GetAnnotations(), RuntimeHandler: one.GetRuntimeHandler(),
		}
		size := nribound.SandboxSize(sandbox)
		size.Bytes += unlisted
		sandboxes = append(sandboxes, Sandbox{
			PodSandbox: sandbox, Created: time.Unix(0, one.GetCreatedAt()), Size: size,
			Ready: one.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		})
	}
	return sandboxes, nil
}

// unknown is the size of a container that cannot be measured: a message, which cannot be sent.
var unknown = nribound.Size{Bytes: nribound.Message}

// measure sets the sizes of the containers. One that is gone meanwhile has none. One that cannot be
// measured has the unknown size: at once if it is too large, and else after some attempts, as it
// would keep this program from being registered for good. That is so only if others can be
// measured: if none can, it is the runtime that fails.
func (s *Source) measure(ctx context.Context, list *List) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.sizes
	s.sizes = make(map[string]nribound.Size, len(list.Containers))
	var running sync.WaitGroup
	slots := make(chan struct{}, queries)
	errs := make([]error, len(list.Containers))
	for i := range list.Containers {
		c := &list.Containers[i]
		if size, known := before[c.ID]; known {
			c.Size = size
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			c.Size, errs[i] = s.size(ctx, c.ID)
		})
	}
	running.Wait()
	failures := map[string]int{}
	for i := range list.Containers {
		c, err := &list.Containers[i], &errs[i]
		switch status.Code(*err) {
		case codes.OK:
			s.sizes[c.ID] = c.Size
		case codes.NotFound:
			*err = nil
		case codes.ResourceExhausted: // it is described with more than a message of gRPC
			c.Size, *err = unknown, nil
			s.sizes[c.ID] = c.Size
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled: // not because of the container
		default:
			failures[c.ID] = s.failures[c.ID] + 1
		}
	}
	s.failures = failures
	others := sync.OnceValue(func() bool { return s.canMeasure(ctx) })
	for i := range list.Containers {
		if c := &list.Containers[i]; failures[c.ID] > attempts && others() {
			c.Size, errs[i] = unknown, nil
		}
	}
	return errors.Join(errs...)
}

// canMeasure reports whether a container can be measured that could be before. The caller holds the
// lock.
func (s *Source) canMeasure(ctx context.Context) bool {
	for id, size := range s.sizes {
		if size != unknown {
			_, err := s.size(ctx, id)
			return err == nil
		}
	}
	return false
}

// Container returns a container as the runtime describes it to plugins. Its error has the code of
// the runtime's answer, NotFound for a container that is gone.
func (s *Source) Container(ctx context.Context, id string) (*api.Container, error) {
	request := &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true}
	answer, err := s.client.ContainerStatus(ctx, request, grpc.MaxCallRecvMsgSize(longestAnswer))
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", id, err)
	}
	var info struct {
		SandboxID   string      `json:"sandboxID"`
		RuntimeSpec *specs.Spec `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil || info.RuntimeSpec == nil {
		return nil, fmt.Errorf("status of container %s: the container runtime does not have the specification for the "+
			"OCI runtime in it (runtimeSpec)", id)
	}
	c := containerOf(answer.GetStatus(), info.RuntimeSpec)
	c.PodSandboxId = info.SandboxID
	return c, nil
}

// size returns the size of a container.
func (s *Source) size(ctx context.Context, id string) (nribound.Size, error) {
	described, err := s.Container(ctx, id)
	if err != nil {
		return nribound.Size{}, err
	}
	labels, err := s.labels(ctx, id)
	if err != nil {
		return nribound.Size{}, fmt.Errorf("labels of container %s: %w", id, err)
	}
	maps.Copy(labels, described.GetLabels())
	described.Labels = labels
	return nribound.ContainerSize(described), nil
}

// labels returns the labels of a container that the CRI does not list. containerd gives it those of
// its image, and sends them to plugins. Its own API has them: reading the image takes as long as
// its author wants. CRI-O has no such API, and sends only the labels that the CRI lists
// (server/nri-api.go).
func (s *Source) labels(ctx context.Context, id string) (map[string]string, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	request := &containers.GetContainerRequest{ID: id}
	answer, err := s.containers.Get(ctx, request, grpc.MaxCallRecvMsgSize(longestAnswer))
	if err != nil && status.Code(err) != codes.Unimplemented {
		return nil, err
	}
	labels := map[string]string{}
	maps.Copy(labels, answer.GetContainer().GetLabels())
	return labels, nil
}

// containerOf describes a container from what the runtime has of it, as containerd does
// (internal/cri/nri/nri_api_linux.go).
func containerOf(has *runtimeapi.ContainerStatus, spec *specs.Spec) *api.Container {
	c := &api.Container{
		Id: has.GetId(), Name: has.GetMetadata().GetName(),
		CreatedAt: has.GetCreatedAt(), StartedAt: has.GetStartedAt(),
		StatusReason: has.GetReason(), StatusMessage: has.GetMessage(), Labels: has.GetLabels(),
		Annotations: map[string]string{}, Mounts: api.FromOCIMounts(spec.Mounts), Hooks: api.FromOCIHooks(spec.Hooks),
		Image: &api.Image{
			Name: has.GetImage().GetUserSpecifiedImage(), ConfigDigest: cmp.Or(has.GetImageId(), has.GetImageRef()),
		},
	}
	for _, annotations := range []map[string]string{spec.Annotations, has.GetAnnotations()} {
		for key, value := range annotations {
			c.Annotations[key] = value
		}
	}
	if spec.Process != nil {
		c.Args, c.Env = spec.Process.Args, spec.Process.Env
		c.User = &api.User{
			Uid: spec.Process.User.UID, Gid: spec.Process.User.GID, AdditionalGids: spec.Process.User.AdditionalGids,
		}
		for _, limit := range spec.Process.Rlimits {
			c.Rlimits = append(c.Rlimits, &api.POSIXRlimit{Type: limit.Type, Hard: limit.Hard, Soft: limit.Soft})
		}
	}
	if spec.Linux != nil {
		c.Linux = &api.LinuxContainer{
			Namespaces: api.FromOCILinuxNamespaces(spec.Linux.Namespaces), Sysctl: spec.Linux.Sysctl,
			Devices: api.FromOCILinuxDevices(spec.Linux.Devices), CgroupsPath: spec.Linux.CgroupsPath,
			Resources: api.FromOCILinuxResources(spec.Linux.Resources, nil),
		}
		if spec.Linux.Seccomp != nil {
			c.Linux.SeccompPolicy = api.FromOCILinuxSeccomp(spec.Linux.Seccomp)
		}
	}
	return c
}
