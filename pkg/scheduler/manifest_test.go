// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestTheStaticPodThatWeShipStartsTheCommandThatWeHave(t *testing.T) {
	text, err := os.ReadFile("../../deploy/static-pods/kube-scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var pod v1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatal(err)
	}
	container := pod.Spec.Containers[0]
	if err := NewCommand().ParseFlags(container.Command[1:]); err != nil {
		t.Error(err)
	}
	volumes := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		volumes[volume.Name] = true
	}
	mounted := false
	for _, mount := range container.VolumeMounts {
		if !volumes[mount.Name] {
			t.Errorf("mount %s has no volume", mount.Name)
		}
		mounted = mounted || mount.MountPath == container.Command[0]
	}
	if !mounted {
		t.Errorf("nothing mounts the program %s", container.Command[0])
	}
}
