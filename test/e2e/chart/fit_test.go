// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	sdkresource "github.com/kubedevice/kubedevice/pkg/sdk/resource"
)

// checkFit makes sure that kubectl device fit says of a manifest that names no scheduler where its
// pod goes, and creates the pod.
func (s *story) checkFit(pod *corev1.Pod) {
	s.Helper()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	manifest, err := yaml.Marshal(pod)
	s.must(err)
	file := filepath.Join(s.TempDir(), "pod.yaml")
	s.must(os.WriteFile(file, manifest, 0o644))
	fit := exec.CommandContext(s.ctx, filepath.Join(root, "_output", "kubectl-device"), "fit", "--filename="+file,
		"--output=json", "--kubeconfig="+shared.Kubeconfig())
	fit.Stderr = os.Stderr
	text, err := fit.Output()
	s.must(err)
	var answer schedulerapi.Placements
	s.must(json.Unmarshal(text, &answer))
	if !answer.Fits || len(answer.Pods) != 1 || len(answer.Pods[0].Containers) != 1 {
		s.Fatalf("kubectl device fit says %s", text)
	}
	said := map[string]bool{}
	for _, device := range answer.Pods[0].Containers[0].Devices {
		said[device.Path] = true
	}

	placed := s.run(pod)
	allocation, err := deviceinfo.PodAllocation(placed)
	s.must(err)
	got := map[string]bool{}
	for _, name := range allocation.RunningContainers["main"].AllocateFrom {
		path, err := sdkresource.ParsePath(name)
		s.must(err)
		got[path.Device()] = true
	}
	if diff := cmp.Diff(said, got); diff != "" || answer.Pods[0].Node != placed.Spec.NodeName {
		s.Errorf("the pod is on %s, kubectl device fit says %s; devices (-said +got):\n%s", placed.Spec.NodeName,
			answer.Pods[0].Node, diff)
	}
}
