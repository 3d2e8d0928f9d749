// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestRestoringADevicePodIsRefused(t *testing.T) {
	claim := allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})[deviceinfo.Annotation]
	for name, test := range map[string]struct {
		known  *pods.Pod
		source string
		claim  string
		wall   bool
		allow  string
		code   codes.Code
	}{
		"a device pod": {known: &requesting, source: "api", code: codes.FailedPrecondition},
		"a device pod with an allocation": {
			known: &requesting, source: "api", claim: claim, code: codes.FailedPrecondition,
		},
		"a pod that requests in the annotation": {
			known: &plain, source: "api", claim: claim, code: codes.FailedPrecondition,
		},
		"another pod, without the firewall": {known: &plain, source: "api"},
		"another pod, whose checkpoint may bring devices": {
			known: &plain, source: "api", wall: true, code: codes.FailedPrecondition,
		},
		"another pod that the firewall lets through": {
			known: &plain, source: "api", wall: true, allow: "default/*",
		},
		"a pod that nobody knows yet":           {source: "api", code: codes.Unavailable},
		"a static pod, which never has devices": {source: "file", claim: claim},
	} {
		f := newFixture(t, true)
		if test.wall {
			f.Firewall, f.files = f.wall, map[string]bool{"/dev/nvidiactl": true}
			f.Allowlist = allowlist(t, test.allow)
		}
		if test.known != nil {
			f.pods["u"] = *test.known
		}
		annotations := map[string]string{sourceAnnotation: test.source}
		if test.claim != "" {
			annotations[deviceinfo.Annotation] = test.claim
		}
		raw, err := proto.Marshal(&runtimeapi.RestorePodRequest{
			Config: &runtimeapi.PodSandboxConfig{
				Metadata:    &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "default"},
				Annotations: annotations,
			},
			ContainerConfigs: []*runtimeapi.ContainerConfig{{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		suffix, err := f.RestorePod(context.Background(), raw)
		if status.Code(err) != test.code || len(suffix) > 0 {
			t.Errorf("%s: %q, %v; want code %v", name, suffix, err, test.code)
		}
		if refused := test.code == codes.FailedPrecondition; refused &&
			(!strings.Contains(err.Error(), "create it again") || len(f.warnings) != 1) {
			t.Errorf("%s: %v; the pod was warned %q", name, err, f.warnings)
		}
	}
}
