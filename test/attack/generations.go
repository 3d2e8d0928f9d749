// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// laterGeneration writes a later generation of a running pod's allocation, without devices.
func laterGeneration(ctx context.Context, s *Stage) (Got, error) {
	controller, err := s.controller(ctx)
	if err != nil {
		return Got{}, err
	}
	own, err := s.victim(ctx)
	if err != nil {
		return Got{}, err
	}
	key, err := newKey()
	if err != nil {
		return Got{}, err
	}
	signer, err := seal.NewSigner(key)
	if err != nil {
		return Got{}, err
	}
	nothing := &types.PodInfo{Name: own.pod.Name, NodeName: own.pod.Spec.NodeName}
	annotation, err := deviceinfo.EncodePod(nothing)
	if err != nil {
		return Got{}, err
	}
	sealed, err := signer.Seal(seal.Decision{
		UID: own.pod.UID, Namespace: own.pod.Namespace, Name: own.pod.Name, Node: own.pod.Spec.NodeName,
		Allocation: seal.DigestOf(nothing), Time: time.Now(), Generation: 1,
	})
	if err != nil {
		return Got{}, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{deviceinfo.Annotation: annotation, seal.Annotation: sealed},
	}})
	if err != nil {
		return Got{}, err
	}
	err = mergePatch(ctx, controller, own.pod, patch)
	if got, refused, err := refusal(err); refused || err != nil {
		return got, err
	}
	return s.staysHeld(ctx, own.device)
}
