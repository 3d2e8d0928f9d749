// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
)

// systemdNRI has systemd start a kubecri that the container runtime calls as an NRI plugin. The
// kubelet stays as it is.
type systemdNRI struct{ units }

// kubelet implements installation.
func (n systemdNRI) kubelet(ctx context.Context) (Kubelet, *Fact) {
	k, err := n.findKubelet(ctx)
	if err != nil {
		return Kubelet{}, unusableKubelet(err)
	}
	return k, nil
}

// facts implements installation.
func (n systemdNRI) facts(ctx context.Context, s *nodeState) []Fact {
	runtime, _ := n.runtimeFact(ctx, s)
	return n.commonFacts(ctx, s, ownFacts{
		endpoint: fact("endpoint", "%s; it stays", s.kubelet.Endpoint), runtime: runtime, holders: n.holdersFact(s),
		nri: n.nriFacts(ctx, s),
	})
}

// nriFacts are about NRI: whether the runtime registers kubecri, and whether containers can require
// it.
func (n systemdNRI) nriFacts(ctx context.Context, s *nodeState) []Fact {
	socket := n.options.NRISocket
	if socket == "" || !n.options.Host.exists(socket) {
		return []Fact{fact("NRI", "there is no %s", socket).blocks("switch NRI on in the runtime's configuration and " +
			"restart it, or say in " + n.options.ConfigFile + " as nriSocket where it is; or use mode: cri")}
	}
	facts := append([]Fact{n.registrationFact(ctx, s, socket)}, n.validatorFacts(ctx, s)...)
	if n.options.MetricsAddress == "" {
		facts = append(facts, fact("health", "metricsBindAddress is empty").blocks("say in "+n.options.ConfigFile+
			" where kubecri serves its health, by which enrol sees that it is registered"))
	}
	if unit, err := n.unit(ctx, socketUnit); err == nil && unit["LoadState"] == "loaded" {
		facts = append(facts, fact("units", "%s is installed, which is for the kubelet", socketUnit).notice(
			"nothing calls it in mode nri: systemctl mask --now "+socketUnit))
	}
	return facts
}

// holdersFact implements installation.
func (n systemdNRI) holdersFact(s *nodeState) Fact { return n.heldFact(s, keepDevices) }

// enrolSteps implements installation.
func (n systemdNRI) enrolSteps(j *journal) []step {
	return []step{n.start(j, "kubecri is registered with NRI", n.registered)}
}

// registered waits until the container runtime has registered kubecri.
func (n systemdNRI) registered(ctx context.Context, _ *journal) error {
	err := n.await(ctx, runtimeTimeout, "kubecri is registered with NRI", n.options.Kubecri.Registered)
	if err != nil {
		return fmt.Errorf("the runtime does not call kubecri: %w; see journalctl -u %s", err, serviceUnit)
	}
	return nil
}

// leaveSteps implements installation.
func (n systemdNRI) leaveSteps(j *journal) []step { return []step{n.stop(j)} }

// awaitVacated implements installation.
func (systemdNRI) awaitVacated(context.Context, *journal, kubernetes.Interface) error { return nil }
