// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// configField is the number of CreateContainerRequest.config.
const configField protowire.Number = 2

// Decode reads a CreateContainerRequest. Fields that this program does not know are no error.
func Decode(request []byte) (*runtimeapi.CreateContainerRequest, error) {
	decoded := &runtimeapi.CreateContainerRequest{}
	if err := proto.Unmarshal(request, decoded); err != nil {
		return nil, fmt.Errorf("read CreateContainerRequest: %w", err)
	}
	return decoded, nil
}

// Suffix returns the bytes that, appended to a CreateContainerRequest, merge delta into its config.
func Suffix(delta *runtimeapi.ContainerConfig) ([]byte, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(delta)
	if err != nil {
		return nil, fmt.Errorf("write ContainerConfig: %w", err)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, configField, protowire.BytesType), encoded), nil
}
