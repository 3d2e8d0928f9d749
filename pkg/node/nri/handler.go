// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/util/version"
)

// Handler handles the runtime's events and requests to its plugins. The runtime waits for each
// method, with all other pods and containers of the node, and drops a plugin that takes longer than
// ctx allows, 2 seconds by default. It calls one method at a time; one of a connection that has
// ended may still run. Nothing that is passed may be changed.
type Handler interface {
	// Prepare returns why the runtime must not be connected to now, or nil. It is called before
	// each connection, and may take its time.
	Prepare(ctx context.Context) error
	// Synchronize says, when the runtime has registered the plugin, which pods there are, and which
	// containers that have not ended. An error ends the connection.
	Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) error
	// RunPodSandbox says that a pod's containers will be created. An error refuses the pod for now,
	// and is for its owner.
	RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error
	// CreateContainer returns what to change in a container that is about to be created, or nil. An
	// error refuses the container, and is for its pod's owner.
	CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error)
	// PostCreateContainer says that the container was created.
	PostCreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error
	// StopContainer says that the container has ended.
	StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error
	// RemoveContainer says that the container is gone, or that it could not be created.
	RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error
	// RemovePodSandbox says that the pod is gone.
	RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error
	// Left says that a connection has ended, also one that was never synchronized. What happens
	// from now on is not reported.
	Left()
}

// oldest has the first version of each runtime whose NRI is 0.10 or later. Before that it did not
// tell which CDI devices a container has, and took no rules for devices.
var oldest = map[string]*version.Version{
	"containerd": version.MustParseGeneric("2.2"),
	"cri-o":      version.MustParseGeneric("1.34"),
}

// checkRuntime returns why the runtime of that name and version is too old for a Handler.
func checkRuntime(name, number string) error {
	first, known := oldest[name]
	if !known {
		return fmt.Errorf("NRI of the container runtime %q is not known; use containerd or CRI-O, or --mode=cri", name)
	}
	have, err := version.ParseGeneric(number)
	if err != nil {
		return fmt.Errorf("the container runtime %s says that its version is %q: %w", name, number, err)
	}
	if have.LessThan(first) {
		return fmt.Errorf("NRI of %s %s is too old for --mode=nri; upgrade it to %s or later, or use --mode=cri", name,
			number, first)
	}
	return nil
}
