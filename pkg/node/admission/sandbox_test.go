// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CRI-O reads the annotations of the sandbox, not those that the pod has now.
func TestAnAnnotationThatTheSandboxWasCreatedWithIsRefused(t *testing.T) {
	all := map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=all"}
	for name, test := range map[string]struct {
		pod, sandbox map[string]string
		unknown      error
		code         codes.Code
		says         string
	}{
		"the pod has it no longer": {
			sandbox: all, code: codes.FailedPrecondition,
			says: "cdi.k8s.io/x (nvidia.com/gpu=all) of the pod's sandbox requests devices",
		},
		"the pod has another value": {
			pod: map[string]string{"cdi.k8s.io/x": "other.com/nic=0"}, sandbox: all, code: codes.FailedPrecondition,
			says: "(nvidia.com/gpu=all) of the pod's sandbox requests devices",
		},
		"the pod still has it": {
			pod: all, sandbox: all, code: codes.FailedPrecondition,
			says: `container "main": the annotation cdi.k8s.io/x (nvidia.com/gpu=all) of the pod requests devices`,
		},
		"another annotation passes": {sandbox: map[string]string{"note": "nvidia.com/gpu=all"}},
		"the runtime does not answer": {
			unknown: errors.New("no answer"), code: codes.Unavailable,
			says: `which annotations the sandbox of container "main" has is not known: no answer`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &gpus{})
			f.Firewall, f.pods["u"], f.sandbox, f.unknown = f.wall, plain, test.sandbox, test.unknown
			_, err := f.createAs(t, "u", "api", test.pod, &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			})
			if status.Code(err) != test.code || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %v: %s", err, test.code, test.says)
			}
		})
	}
}

// With NRI the pod's annotations are those of the sandbox, and the runtime waits for the answer.
func TestARuntimeThatShowsTheSandboxIsNotQueriedForIt(t *testing.T) {
	f := fixtureWith(t, &gpus{})
	f.Firewall, f.pods["u"], f.withImage, f.unknown = f.wall, plain, true, errors.New("no answer")
	if _, err := f.create(t, "u", "main", "api", nil); err != nil {
		t.Error(err)
	}
}
