// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// denyEnvs returns the environment variables that keep the container from devices which it does not hold: none unless the
// gate isolates, and none for a container that this is not for.
//
// It is not for pods that the API server does not know, such as static pods: whoever writes those is root on the node. And
// not for privileged containers, which see all devices of the node whatever their environment says.
func (g *Gate) denyEnvs(ctx context.Context, s subject, config *runtimeapi.ContainerConfig, holds types.ResourceLocation) (map[string]string, error) {
	if !g.Isolate || !s.fromAPI() || config.GetLinux().GetSecurityContext().GetPrivileged() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	deny, err := g.Devices.DenyEnvs(ctx, holds)
	if err != nil {
		return nil, &refusal{code: codes.Unavailable, cause: fmt.Errorf("how to keep the container from devices is not known: %w", err), quiet: true}
	}
	return deny, nil
}

// isolate adds the environment variables to delta, save those that are there: they come with devices that the container holds.
func isolate(delta *runtimeapi.ContainerConfig, deny map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(deny)) {
		given := func(env *runtimeapi.KeyValue) bool { return env.GetKey() == name }
		if !slices.ContainsFunc(delta.GetEnvs(), given) {
			delta.Envs = append(delta.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(deny[name])})
		}
	}
}
