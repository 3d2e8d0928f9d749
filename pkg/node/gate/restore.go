// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errRestore is why a device pod is not restored. Its processes go on where they were, with the environment that names the
// devices of before, which a restore must not change; and what was in those devices' memory is in no checkpoint.
var errRestore = errors.New("a pod that asks for devices cannot be restored from a checkpoint, which has neither its devices' state nor room for other devices; create it anew")

// RestorePod is the criproxy.Edit of RestorePodMethod: pods that ask for devices are refused, all others pass untouched,
// isolated or not: a restored process keeps the environment that it was checkpointed with.
func (g *Gate) RestorePod(ctx context.Context, raw []byte) ([]byte, error) {
	request := &runtimeapi.RestorePodRequest{}
	if err := proto.Unmarshal(raw, request); err != nil {
		return nil, invalid(fmt.Errorf("read RestorePodRequest: %w", err))
	}
	s := subjectOf(request.GetConfig())
	_, asks, err := g.asks(ctx, s)
	if err == nil && asks {
		err = never(errRestore)
	}
	if err != nil {
		return nil, g.refuse(ctx, s, err)
	}
	return nil, nil
}
