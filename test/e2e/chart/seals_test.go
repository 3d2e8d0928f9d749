// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// Where pods hold devices already, seals are turned on step by step, and no container notices. The
// commands are those of README and docs/deploy/chart.md.
func TestSealsAreTurnedOnWherePodsHoldDevices(t *testing.T) {
	clustertest.OnlyInFull(t, "test/e2e/seals turns them on without the chart")
	s := beginWithoutNamespace(t)
	s.helm(append(s.install(values()), "--create-namespace", "--set=seals.mode=off")...)
	s.label(`"true"`)
	s.awaitPolicy()
	run := func(name string, sealed bool) *corev1.Pod {
		pod := s.run(s.gpuPod(name, 2))
		s.checkPair(pod)
		if got := pod.Annotations[seal.Annotation] != ""; got != sealed {
			t.Errorf("pod %s has a seal: %t, want %t", name, got, sealed)
		}
		return pod
	}
	pods := []*corev1.Pod{run("off", false)}
	s.refuse("set it to warn first", "upgrade", "kubedevice", root+"/deploy/chart", "--reuse-values",
		"--set=seals.mode=enforce")
	for _, mode := range []string{"warn", "enforce"} {
		s.helm("upgrade", "kubedevice", root+"/deploy/chart", "--reuse-values", "--set=seals.mode="+mode)
		s.kubectl("--namespace="+system, "rollout", "status", "daemonset/kubedevice-node-simulated", "--timeout=2m")
		s.kubectl("--namespace="+system, "rollout", "status", "deployment/kubedevice-scheduler", "--timeout=2m")
		pods = append(pods, run(mode, true))
	}
	for _, pod := range pods {
		s.checkRunsOn(pod)
		clustertest.DeletePod(s.ctx, s, shared.Client, pod)
	}
	s.helm("uninstall", "kubedevice", "--wait", "--timeout=2m")
	s.kubectl("delete", "namespace", system)
	s.label("null")
	s.checkBystander()
	s.checkKubelets()
	s.checkNothingIsLeft()
}
