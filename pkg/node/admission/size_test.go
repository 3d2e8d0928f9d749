// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// shares is a device plugin with GPUs whose memory many pods share. It adds an annotation.
type shares struct {
	cards
	gpus       []types.ResourceName
	annotation string
}

func (s *shares) GetName() string { return "shares" }

func (s *shares) UpdateNodeInfo(info *types.NodeInfo) error {
	for _, name := range s.gpus {
		info.Capacity[name], info.Allocatable[name] = 80<<30, 80<<30
	}
	info.KubeCap[gpu], info.KubeAlloc[gpu] = 8, 8
	return nil
}

func (s *shares) AllocateContainer(*types.PodInfo, *types.ContainerInfo) (*device.Allocation, error) {
	return &device.Allocation{Annotations: map[string]string{"example.com/shares": s.annotation}}, nil
}

// gpuNames are the memories of GPUs with names as long as those of real ones.
func gpuNames(n int) (names []types.ResourceName) {
	for i := range n {
		id := fmt.Sprintf("GPU-%08x-aaaa-bbbb-cccc-%012x", i*7919, i*104729)
		names = append(names, types.ResourceName(fmt.Sprintf(
			"resource/group/gpugrp1/%d/gpugrp0/%d/gpu/%s/memory", i/4, i/2, id)))
	}
	return names
}

// A node is full of pods, each of as many containers as anybody has, and each of these has a share
// of every GPU: the worst that can be requested on it. Each container carries what the kubelet
// gives it, and its own part. The kubelet takes messages up to 16 MiB; 4 MiB is gRPC's default.
func TestTheListOfAFullNodesContainersStaysSmall(t *testing.T) {
	const (
		pods110, containers, gpus = 110, 20, 8
		limit                     = 4 << 20
	)
	plugin := &shares{gpus: gpuNames(gpus)}
	f := fixtureWith(t, plugin)
	list := &runtimeapi.ListContainersResponse{}
	for p := range pods110 {
		uid := fmt.Sprintf("11111111-2222-3333-4444-%012d", p)
		spec, claimed := pods.Pod{Namespace: "default"}, map[string][]types.ResourceName{}
		for c := range containers {
			name := fmt.Sprintf("container-%d", c)
			spec.Containers = append(spec.Containers, pods.Container{Name: name})
			claimed[name] = plugin.gpus
		}
		f.pods[uid] = spec
		annotations := allocation(t, "pod-"+uid, "node-1", claimed)
		for _, container := range spec.Containers {
			config := &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: container.Name},
				Labels: map[string]string{
					"io.kubernetes.container.name": container.Name, "io.kubernetes.pod.name": "pod-" + uid,
					"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": uid,
				},
				Annotations: map[string]string{
					"io.kubernetes.container.hash": "12345678", "io.kubernetes.container.restartCount": "0",
					"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
					"io.kubernetes.container.terminationMessagePolicy": "File",
					"io.kubernetes.pod.terminationGracePeriod":         "30",
				},
			}
			got, err := f.createAs(t, uid, "api", annotations, config)
			if err != nil {
				t.Fatal(err)
			}
			if got.Annotations[grants.Annotation] == "" {
				t.Fatalf("container %s carries nothing", container.Name)
			}
			list.Containers = append(list.Containers, &runtimeapi.Container{
				Id: strings.Repeat("c", 64), PodSandboxId: strings.Repeat("s", 64), Metadata: config.Metadata,
				Image:    &runtimeapi.ImageSpec{Image: "sha256:" + strings.Repeat("i", 64)},
				ImageRef: "sha256:" + strings.Repeat("i", 64), ImageId: "sha256:" + strings.Repeat("i", 64),
				CreatedAt: 1 << 60, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
				Labels: config.Labels, Annotations: got.Annotations,
			})
		}
	}
	size := proto.Size(list)
	t.Logf("%d containers, each with a share of %d GPUs: %d KiB, of which they carry %d KiB",
		len(list.Containers), gpus, size>>10, carriedBy(list)>>10)
	if size > limit {
		t.Errorf("ListContainers has %d bytes, more than %d", size, limit)
	}
}

// carriedBy is how many bytes of a list were added for devices.
func carriedBy(list *runtimeapi.ListContainersResponse) (size int) {
	for _, container := range list.Containers {
		size += len(grants.Annotation) + len(container.Annotations[grants.Annotation])
	}
	return size
}

func TestAContainerThatWouldCarryTooMuchIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		gpus       int
		annotation string
		want       []string
	}{
		"by the names of its devices": {
			gpus: 120, want: []string{`runningcontainer["main"]`, "bytes in the container runtime", "at most 7168"},
		},
		"by an annotation of a device plugin": {
			gpus: 8, annotation: strings.Repeat("a", 8<<10), want: []string{`container "main"`, "at most 8192"},
		},
		"not by eight GPUs": {gpus: 8, annotation: strings.Repeat("a", 4<<10)},
	} {
		plugin := &shares{gpus: gpuNames(test.gpus), annotation: test.annotation}
		f := fixtureWith(t, plugin)
		f.pods["u"] = requesting
		annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": plugin.gpus})
		_, err := f.create(t, "u", "main", "api", annotations)
		if want := map[bool]codes.Code{true: codes.FailedPrecondition}[len(test.want) > 0]; status.Code(err) != want {
			t.Errorf("%s: %v, want code %v", name, err, want)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not have %q: %v", name, want, err)
			}
		}
	}
}

func TestAContainerThatAnEarlierReleaseGrantedMoreStartsAgain(t *testing.T) {
	plugin := &shares{gpus: gpuNames(120)}
	f := fixtureWith(t, plugin)
	f.pods["u"] = requesting
	annotations := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": plugin.gpus})
	info, err := deviceinfo.DecodePod(annotations[deviceinfo.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Grants.Grant(t.Context(), grants.Allocation{PodUID: "u", Namespace: "default", Name: "pod-u",
		PodInfo: info}, func(types.ResourceName) (int64, bool) { return 80 << 30, true }); err != nil {
		t.Fatal(err)
	}
	config, err := f.create(t, "u", "main", "api", annotations)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(config.Annotations[grants.Annotation]); got <= deviceinfo.MaxContainerBytes {
		t.Errorf("it carries %d bytes: nothing is tested", got)
	}
}

func TestUserRequestsAreNotInTheCheckpoint(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = requesting
	info, err := deviceinfo.DecodePod(allocation(t, "pod-u", "node-1",
		map[string][]types.ResourceName{"main": {card0}})[deviceinfo.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	info.Requests = types.ResourceList{"secret/pod": 1}
	main := info.RunningContainers["main"]
	main.Requests, main.Scorer = types.ResourceList{"secret/0/cards": 1}, types.ResourceScorer{"secret/0/cards": 1}
	info.RunningContainers["main"] = main
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		t.Fatal(err)
	}
	config, err := f.create(t, "u", "main", "api", map[string]string{deviceinfo.Annotation: value})
	if err != nil {
		t.Fatal(err)
	}
	granted, _, err := f.Grants.Granted(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := deviceinfo.EncodePod(granted.PodInfo)
	if err != nil {
		t.Fatal(err)
	}
	if texts := []string{recorded, config.Annotations[grants.Annotation]}; slices.ContainsFunc(texts,
		func(text string) bool { return strings.Contains(text, "secret") }) {
		t.Errorf("it travels: %q", texts)
	}
}
