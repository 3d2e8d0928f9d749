// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"

	"k8s.io/client-go/kubernetes"
)

// agentNRI leaves it to the caller, such as the agent in a DaemonSet, to start a kubecri that the
// container runtime calls as an NRI plugin. It reads nothing of the kubelet but its devices, and no
// pod is disturbed.
type agentNRI struct{ *Enrolment }

// kubelet implements installation.
func (a agentNRI) kubelet(context.Context) (Kubelet, *Fact) {
	n := a.options.NRI
	return Kubelet{Node: n.Node, Kubeconfig: n.Kubeconfig, Endpoint: n.Runtime}, nil
}

// kubeconfigAdvice implements installation.
func (agentNRI) kubeconfigAdvice() string {
	return "name the kubelet's as kubeconfig in kubecri's configuration, which the chart has in the value " +
		"node.kubeconfig: the kubelet's process has it as --kubeconfig"
}

// disturbsPods implements installation.
func (agentNRI) disturbsPods() bool { return false }

// facts implements installation.
func (a agentNRI) facts(ctx context.Context, s *nodeState) []Fact {
	socket := a.socketFact()
	facts := []Fact{a.nodeFact(ctx, s), a.runtimeFact(ctx, s), socket}
	if socket.Risk == None {
		facts = append(facts, a.registrationFact(ctx, s, a.options.NRI.Socket))
		facts = append(facts, a.validatorFacts(ctx, s)...)
	}
	facts = append(facts, a.cdiFact(ctx, s), a.clockFact(ctx, s), a.programFact(ctx))
	facts = append(facts, a.pluginFacts(ctx, s)...)
	facts = append(facts, a.managerFacts(ctx, s)...)
	return append(facts, a.holdersFact(s), a.diskFact())
}

// runtimeFact is about the container runtime, whose CRI kubecri reads lists of containers from.
func (a agentNRI) runtimeFact(ctx context.Context, s *nodeState) Fact {
	version, err := a.options.Runtimes.Version(ctx, s.kubelet.Endpoint)
	if err != nil {
		return fact("runtime", "%s does not answer: %v", s.kubelet.Endpoint, err).
			blocks("name the endpoint that the kubelet calls, as criUpstream in kubecri's configuration")
	}
	return fact("runtime", "%s", version)
}

// socketFact is about the socket where kubecri registers.
func (a agentNRI) socketFact() Fact {
	socket := a.options.NRI.Socket
	if !a.options.Host.exists(socket) {
		return fact("NRI", "%s does not exist", socket).blocks("switch NRI on in the container runtime (containerd " +
			"2.2, CRI-O 1.34 or later), name its socket as nriSocket in kubecri's configuration, or use the proxy")
	}
	return fact("NRI", "on")
}

// holdersFact implements installation.
func (a agentNRI) holdersFact(s *nodeState) Fact {
	return a.holdersNotice(s, "they keep them", "enrol when these pods are gone")
}

// plan implements installation.
func (agentNRI) plan(context.Context, *nodeState, *journal) error { return nil }

// enrolSteps implements installation.
func (agentNRI) enrolSteps(*journal) []step { return nil }

// leaveSteps implements installation.
func (a agentNRI) leaveSteps(*journal) []step {
	return []step{{"plugin", []string{"end kubecri", "take away what it published"}, a.stop}}
}

// stop ends kubecri, takes away what it published, and removes what it kept. A caller of Leave that
// has not started kubecri leaves it to others to end it.
func (a agentNRI) stop(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if a.options.NRI != nil {
		if err := a.options.Kubecri.Stop(ctx); err != nil {
			return err
		}
	}
	if err := a.options.Kubecri.Withdraw(ctx, client, j.Node); err != nil {
		return err
	}
	return errors.Join(a.removeState(ctx, j, client), a.removeOwned(j))
}

// awaitVacated implements installation.
func (agentNRI) awaitVacated(context.Context, *journal, kubernetes.Interface) error { return nil }
