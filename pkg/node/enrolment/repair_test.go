// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

func TestAnEndpointThatWasPutBackIsSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		const config = "/var/lib/kubelet/config.yaml"
		m.write(config, kubeadm[config]+"maxPods: 200\n")
		m.expect(m.enrol(), Done)
		if m.endpoint() != kubecriEndpoint {
			t.Errorf("the kubelet calls %s", m.endpoint())
		}
		m.expect(m.leave(), Done)
		if got, want := m.read(config), kubeadm[config]+"maxPods: 200\n"; got != want {
			t.Errorf("%s has\n%swant\n%s", config, got, want)
		}
	})
}

func TestAnEndpointThatCannotBeSetAgainLeavesKubecriAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		m.write("/var/lib/kubelet/config.yaml", kubeadm["/var/lib/kubelet/config.yaml"])
		m.dead = true
		m.expect(m.enrol(), Undone)
		if after := m.snapshot(); m.endpoint() != runtimeEndpoint || !m.active["kubecri.service"] ||
			!strings.Contains(after, Label) {
			t.Errorf("the kubelet calls %s:\n%s", m.endpoint(), after)
		}
		m.dead = false
		m.expect(m.enrol(), Done)
	})
}

// kubeadm upgrade may have put the endpoint back while an administrator changed kubecri's files.
func TestARepairLeavesWhatTheAdministratorHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		const config, unit = "/etc/kubedevice/kubecri.yaml", "/etc/systemd/system/kubecri.service"
		m.write(config, "sealMode: enforce\n")
		m.write(unit, "mine")
		m.write("/var/lib/kubelet/config.yaml", kubeadm["/var/lib/kubelet/config.yaml"])
		m.expect(m.enrol(), Done)
		if got := m.read(config); got != "sealMode: enforce\n" {
			t.Errorf("%s has %q", config, got)
		}
		if got := m.read(unit); got != "mine" {
			t.Errorf("%s has %q", unit, got)
		}
	})
}

// Its start would fail the pods for which the repair waited without success.
func TestARepairThatHasChangedNothingRestartsNoKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		m.write("/var/lib/kubelet/config.yaml", kubeadm["/var/lib/kubelet/config.yaml"])
		m.runtimeErr = context.DeadlineExceeded
		m.expect(m.enrol(), Undone)
		if m.restarts != 1 {
			t.Errorf("the kubelet was restarted %d times, want once", m.restarts)
		}
		m.runtimeErr = nil
		m.expect(m.enrol(), Done)
	})
}
