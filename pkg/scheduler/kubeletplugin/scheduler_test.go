// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAResourceIsServedAsLongAsANodeHostsIt(t *testing.T) {
	s := kubeletplugin.New()
	node := func(devices ...string) *types.NodeInfo {
		info := types.NewNodeInfo()
		for _, text := range devices {
			info.Allocatable[deviceName(t, text)] = 0 // an unhealthy one is hosted, too
		}
		return info
	}
	for _, step := range []struct {
		what     string
		do       func()
		gpu, qat bool
	}{
		{"in the beginning", func() {}, false, false},
		{"with n1", func() { s.AddNode("n1", node("gpu 0 a", "qat 0 b")) }, true, true},
		{"with n2", func() { s.AddNode("n2", node("gpu 0 a")) }, true, true},
		{"after n1 has lost its GPUs", func() { s.AddNode("n1", node("qat 0 b")) }, true, true},
		{"without n2", func() { s.RemoveNode("n2") }, false, true},
		{"without n3, which was never there", func() { s.RemoveNode("n3") }, false, true},
		{"with nothing on n1", func() { s.AddNode("n1", node()) }, false, false},
	} {
		step.do()
		if s.Serves(gpu) != step.gpu || s.Serves(qat) != step.qat {
			t.Errorf("%s: GPUs are served: %v, QAT is: %v; want %v, %v", step.what, s.Serves(gpu), s.Serves(qat),
				step.gpu, step.qat)
		}
	}
}

func TestWithoutContainersTheMethodsAllocateToo(t *testing.T) {
	s := kubeletplugin.New()
	node := types.NewNodeInfo()
	node.Allocatable[deviceName(t, "qat 0 a")] = 1
	for quantity, want := range map[int64]string{1: "", 2: "have fewer than 2 free intel.com/qat"} {
		pod := request("p", ask{limits: list{qat: quantity}}).Pod
		fits, reasons, score := s.PodFitsDevice(node, pod.Clone(), false)
		if fits != (want == "") || fits != (score == 1) || !fits && reasons[0].GetReason() != want {
			t.Errorf("%d devices: %v, %v, %v; want the reason %q", quantity, fits, reasons, score, want)
		}
		if err := s.PodAllocate(node, pod); (err == nil) != fits || len(given(pod)) != map[bool]int{true: 1}[fits] {
			t.Errorf("%d devices: allocated %v, %v", quantity, given(pod), err)
		}
	}
}
