// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"
)

func TestLeaveGetsTheArgumentsOfEnrolThatItKnows(t *testing.T) {
	got := leaveArgs([]string{
		"--kubelet-unit=snap.kubelet.service", "--plugins-for-other-devices", "--systemd-dir=/run/systemd/system",
	})
	want := []string{"--kubelet-unit=snap.kubelet.service", "--systemd-dir=/run/systemd/system"}
	if !slices.Equal(got, want) {
		t.Errorf("leave gets %q, want %q", got, want)
	}
}

func TestAnAgentNeedsToKnowItsNode(t *testing.T) {
	command := NewCommand([]string{"agent", "--mode=nri", "--group=gpus", "--selector=a=b", "--programs=/p"})
	if err := command.Execute(); err == nil {
		t.Error("an agent starts without its node's name")
	}
}
