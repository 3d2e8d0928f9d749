// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import "testing"

func TestTheOwnPodIsThatOfTheManifestOrTheStaticPodOfTheHost(t *testing.T) {
	if namespace, name := OwnPod("cp1"); namespace != "kube-system" || name != "kube-scheduler-cp1" {
		t.Errorf("%s/%s", namespace, name)
	}
	t.Setenv("POD_NAMESPACE", "a")
	t.Setenv("POD_NAME", "b")
	if namespace, name := OwnPod("cp1"); namespace != "a" || name != "b" {
		t.Errorf("%s/%s", namespace, name)
	}
}
