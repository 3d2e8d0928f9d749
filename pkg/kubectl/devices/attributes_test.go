// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func TestADeviceHasItsAttributesAndItsOwnModel(t *testing.T) {
	node := func(attributes string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   "n1",
			Labels: map[string]string{"nvidia.com/gpu.product": "of-the-label"},
			Annotations: map[string]string{
				deviceinfo.Annotation: `{"capacity":{"nvidia.com/gpu":2,"resource/group/gpu/a/cards":1,` +
					`"resource/group/gpu/b/cards":1},"allocatable":{"nvidia.com/gpu":2,` +
					`"resource/group/gpu/a/cards":1,"resource/group/gpu/b/cards":1}}`,
				deviceinfo.AttributesAnnotation: attributes,
			},
		}}
	}
	got := NewNode(node(`{"gpu/a":{"productName":"NVIDIA H100","numaNode":1,"v":{"version":"9.0.0"},"new":[]},`+
		`"gpu/gone":{"numaNode":0}}`), nil, time.Time{})
	if len(got.Devices) != 2 || len(got.Problems) > 0 {
		t.Fatalf("%d devices, problems %v", len(got.Devices), got.Problems)
	}
	if a, b := got.Devices[0].Model, got.Devices[1].Model; a != "NVIDIA H100" || b != "of-the-label" {
		t.Errorf("the models are %q and %q", a, b)
	}
	text, err := json.Marshal(got.Devices[0].Attributes)
	const want = `{"numaNode":1,"productName":"NVIDIA H100","v":{"version":"9.0.0"}}`
	if string(text) != want || err != nil {
		t.Errorf("the attributes are %s, %v, want %s", text, err, want)
	}
	got = NewNode(node(`{`), nil, time.Time{})
	if len(got.Devices) != 2 || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "attributes") {
		t.Errorf("with unreadable attributes there are %d devices, problems %v", len(got.Devices), got.Problems)
	}
}
