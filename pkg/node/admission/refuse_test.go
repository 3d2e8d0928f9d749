// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMessagesAboutAContainerAreBounded(t *testing.T) {
	many := map[string]string{}
	for i := range 2000 {
		many[fmt.Sprintf("cdi.k8s.io/a%d", i)] = "nvidia.com/gpu=all"
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		env         *runtimeapi.KeyValue
		withImage   bool
		code        codes.Code
	}{
		"one long device": {
			annotations: map[string]string{"cdi.k8s.io/a": "nvidia.com/gpu=" + strings.Repeat("ä", 99_999)},
			code:        codes.FailedPrecondition,
		},
		"many short ones": {annotations: many, code: codes.FailedPrecondition},
		"the long name of a variable": {
			code: codes.FailedPrecondition,
			env:  &runtimeapi.KeyValue{Key: "DOCKER_RESOURCE_" + strings.Repeat("A", 99_999), Value: []byte("0")},
		},
		"one that is overridden": {
			env:       &runtimeapi.KeyValue{Key: "DOCKER_RESOURCE_" + strings.Repeat("A", 99_999), Value: []byte("0")},
			withImage: true,
		},
	} {
		f := newFixture(t, true)
		f.Firewall, f.files = f.wall, map[string]bool{"/dev/nvidiactl": true, "/dev/kfd": true}
		f.pods["u"], f.withImage = plain, test.withImage
		config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}}
		if test.env != nil {
			config.Envs = append(config.Envs, test.env)
		}
		_, err := f.createAs(t, "u", "api", test.annotations, config)
		if status.Code(err) != test.code {
			t.Errorf("%s: %.200v, want code %v", name, err, test.code)
		}
		said := append(append([]string{}, f.warnings...), f.ignored...)
		if len(said) != 1 || len(said[0]) > maxText || !utf8.ValidString(said[0]) || !strings.HasSuffix(said[0], "…") {
			t.Errorf("%s: %d events, of %d bytes", name, len(said), len(strings.Join(said, "")))
		}
		if length := len(status.Convert(err).Message()); length > maxText+len("kubecri: ") {
			t.Errorf("%s: the answer has %d bytes", name, length)
		}
	}
}
