// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/status"
)

// texted is a Handler whose errors can be sent. The runtime drops a plugin whose error is not
// UTF-8, and creates the container without it: ttrpc ends the connection when it cannot encode an
// answer.
type texted struct {
	Handler
}

func (t texted) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) error {
	return asText(t.Handler.Synchronize(ctx, pods, containers))
}

func (t texted) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return asText(t.Handler.RunPodSandbox(ctx, pod))
}

func (t texted) CreateContainer(
	ctx context.Context, pod *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, error) {
	adjustment, err := t.Handler.CreateContainer(ctx, pod, c)
	return adjustment, asText(err)
}

func (t texted) PostCreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return asText(t.Handler.PostCreateContainer(ctx, pod, c))
}

func (t texted) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return asText(t.Handler.StopContainer(ctx, pod, c))
}

func (t texted) RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return asText(t.Handler.RemoveContainer(ctx, pod, c))
}

func (t texted) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return asText(t.Handler.RemovePodSandbox(ctx, pod))
}

// asText returns the error with what is not UTF-8 in its text replaced; its code stays.
func asText(err error) error {
	if err == nil || utf8.ValidString(err.Error()) {
		return err
	}
	s, _ := status.FromError(err)
	return status.Error(s.Code(), strings.ToValidUTF8(s.Message(), string(utf8.RuneError)))
}
