// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

func TestDevicesHaveTheAttributesOfTheirNode(t *testing.T) {
	node := &v1.Node{}
	node.Annotations = map[string]string{
		deviceinfo.AttributesAnnotation: `{"gpu/a":{"productName":"A","numaNode":0,"v":{"version":"9.0.0"}}}`,
	}
	shown := []schedulerapi.Device{{Path: "gpu/a"}, {Path: "gpu/b"}}
	addAttributes(shown, node)
	got, err := json.Marshal(shown[0].DeviceAttributes)
	if want := `{"numaNode":0,"productName":"A","v":{"version":"9.0.0"}}`; string(got) != want || err != nil {
		t.Errorf("gpu/a has %s, %v, want %s", got, err, want)
	}
	if shown[1].DeviceAttributes != nil {
		t.Errorf("gpu/b has %v", shown[1].DeviceAttributes)
	}
	node.Annotations[deviceinfo.AttributesAnnotation] = "{"
	shown = []schedulerapi.Device{{Path: "gpu/a"}}
	if addAttributes(shown, node); shown[0].DeviceAttributes != nil {
		t.Errorf("of attributes that cannot be read it has %v", shown[0].DeviceAttributes)
	}
}
