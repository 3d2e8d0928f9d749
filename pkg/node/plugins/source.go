// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Claim is a container and the devices that it was given.
type Claim struct {
	// PodUID and ContainerName say which container of which pod it is.
	PodUID, ContainerName string
	// Pod is the allocation of the whole pod, Container that of this container. Both are read only.
	Pod       *types.PodInfo
	Container *types.ContainerInfo
}

// source is where devices come from: the plugin of a file is one. Its methods are called from many goroutines.
type source interface {
	// label is its name, for errors, conflicts and logs.
	label() string
	// state returns what it last told, nil before it has told anything, which stays unchanged; whether it has been asked; and
	// what is wrong with it.
	state() (info *types.NodeInfo, asked bool, err error)
	// denyEnvs returns the environment variables that keep a container which holds none of its devices from using them. The
	// map stays unchanged.
	denyEnvs() map[string]string
	// allocate returns what the container needs for those of its devices that are the source's, within limit.
	allocate(ctx context.Context, claim Claim, limit time.Duration) (inject.Addition, error)
}
