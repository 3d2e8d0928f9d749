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

// utf8Handler is a Handler whose errors can be sent. The runtime drops a plugin whose error is not
// UTF-8, and creates the container without it: ttrpc ends the connection when it cannot encode an
// answer.
type utf8Handler struct {
	Handler
}

func (t utf8Handler) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) error {
	return validUTF8(t.Handler.Synchronize(ctx, pods, containers))
}

func (t utf8Handler) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return validUTF8(t.Handler.RunPodSandbox(ctx, pod))
}

func (t utf8Handler) CreateContainer(
	ctx context.Context, pod *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, error) {
	adjustment, err := t.Handler.CreateContainer(ctx, pod, c)
	return adjustment, validUTF8(err)
}

func (t utf8Handler) PostCreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return validUTF8(t.Handler.PostCreateContainer(ctx, pod, c))
}

func (t utf8Handler) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return validUTF8(t.Handler.StopContainer(ctx, pod, c))
}

func (t utf8Handler) RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return validUTF8(t.Handler.RemoveContainer(ctx, pod, c))
}

func (t utf8Handler) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return validUTF8(t.Handler.RemovePodSandbox(ctx, pod))
}

// validUTF8 returns the error with what is not UTF-8 in its text replaced; its code stays.
func validUTF8(err error) error {
	if err == nil || utf8.ValidString(err.Error()) {
		return err
	}
	s, _ := status.FromError(err)
	return status.Error(s.Code(), strings.ToValidUTF8(s.Message(), string(utf8.RuneError)))
}
