// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicecheck

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels that the kubelet puts on each container.
const (
	labelPodUID    = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// queryTimeout is the timeout of all queries about a container together.
const queryTimeout = 10 * time.Second

// CRIO is a runtime that serves its configuration. Package crio reads that of CRI-O.
type CRIO interface {
	// Configuration returns it in TOML.
	Configuration(ctx context.Context) (string, error)
}

// CRI returns the container runtime behind a connection. crio is read where the runtime does not
// say of a container which program starts it, as CRI-O does not.
func CRI(conn grpc.ClientConnInterface, crio CRIO) Runtime {
	return cri{runtimeapi.NewRuntimeServiceClient(conn), crio}
}

type cri struct {
	client runtimeapi.RuntimeServiceClient
	crio   CRIO
}

// Newest implements Runtime.
func (r cri) Newest(
	ctx context.Context, podUID, name string, created time.Time,
) (c Container, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	list, err := r.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{labelPodUID: podUID, labelContainer: name},
	}})
	if err != nil {
		return Container{}, false, fmt.Errorf("list the runtime's containers: %w", err)
	}
	containers := slices.DeleteFunc(list.GetContainers(), func(c *runtimeapi.Container) bool {
		return c.GetCreatedAt() < created.UnixNano()
	})
	if len(containers) == 0 {
		return Container{}, false, nil
	}
	newest := slices.MaxFunc(containers, func(a, b *runtimeapi.Container) int {
		return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt())
	})
	c, err = r.describe(ctx, newest)
	return c, err == nil, err
}

// describe reads what Container has.
func (r cri) describe(ctx context.Context, listed *runtimeapi.Container) (Container, error) {
	sandbox, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{
		PodSandboxId: listed.GetPodSandboxId(),
	})
	if err != nil {
		return Container{}, fmt.Errorf("sandbox %s: %w", listed.GetPodSandboxId(), err)
	}
	status, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{
		ContainerId: listed.GetId(), Verbose: true,
	})
	if err != nil {
		return Container{}, fmt.Errorf("container %s: %w", listed.GetId(), err)
	}
	var read info
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &read); err != nil {
		return Container{}, fmt.Errorf("read the verbose status of container %s: %w", listed.GetId(), err)
	}
	if read.RuntimeSpec == nil {
		return Container{}, fmt.Errorf("the verbose status of container %s has no specification", listed.GetId())
	}
	c := Container{
		Handler: sandbox.GetStatus().GetRuntimeHandler(), Hooks: len(read.RuntimeSpec.Hooks) > 0,
		Paths: read.RuntimeSpec.paths(),
	}
	c.Program, err = r.program(ctx, read, c.Handler)
	return c, err
}

// info is the part that is read of the verbose status of a container: internal/cri/server,
// container_status.go, in containerd 2, pkg/cri/server in 1.7, and server/container_status.go in
// CRI-O, which has the specification alone.
type info struct {
	RuntimeType    string `json:"runtimeType"`
	RuntimeOptions struct {
		BinaryName string `json:"binary_name"`
	} `json:"runtimeOptions"`
	RuntimeSpec *spec `json:"runtimeSpec"`
}

// spec is the part that is read of the OCI specification.
type spec struct {
	Hooks  map[string]json.RawMessage `json:"hooks"`
	Mounts []struct {
		Destination string `json:"destination"`
		Type        string `json:"type"`
	} `json:"mounts"`
	Linux struct {
		Devices []struct {
			Path string `json:"path"`
		} `json:"devices"`
	} `json:"linux"`
}

// paths returns those of the device files and bind mounts.
func (s *spec) paths() []string {
	var all []string
	for _, d := range s.Linux.Devices {
		all = append(all, d.Path)
	}
	for _, m := range s.Mounts {
		if m.Type == "bind" {
			all = append(all, m.Destination)
		}
	}
	return all
}

// The runtime types of containerd whose shim starts an OCI runtime, and the one that it starts by
// default.
const (
	runcV1, runcV2 = "io.containerd.runc.v1", "io.containerd.runc.v2"
	defaultRuntime = "runc"
)

// program returns the OCI runtime that starts a container with the handler, or "" for another kind
// of runtime.
func (r cri) program(ctx context.Context, read info, handler string) (string, error) {
	switch read.RuntimeType {
	case runcV1, runcV2:
		return cmp.Or(read.RuntimeOptions.BinaryName, defaultRuntime), nil
	case "":
	default:
		return "", nil
	}
	document, err := r.crio.Configuration(ctx)
	if err != nil {
		return "", err
	}
	return crioProgram(document, handler)
}

// crioConfig is the part that is read of CRI-O's configuration.
type crioConfig struct {
	CRIO struct {
		Runtime struct {
			Default  string                 `toml:"default_runtime"`
			Runtimes map[string]crioRuntime `toml:"runtimes"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

type crioRuntime struct {
	Path string `toml:"runtime_path"`
	Type string `toml:"runtime_type"`
}

// crioProgram returns the OCI runtime of a handler of CRI-O's: without a path it is the program of
// the handler's name (pkg/config, RuntimeHandler.ValidateRuntimePath).
func crioProgram(document, handler string) (string, error) {
	var config crioConfig
	if err := toml.Unmarshal([]byte(document), &config); err != nil {
		return "", fmt.Errorf("read CRI-O's configuration: %w", err)
	}
	name := cmp.Or(handler, config.CRIO.Runtime.Default)
	runtime, known := config.CRIO.Runtime.Runtimes[name]
	if !known || runtime.Type != "" && runtime.Type != "oci" {
		return "", nil
	}
	return cmp.Or(runtime.Path, name), nil
}
