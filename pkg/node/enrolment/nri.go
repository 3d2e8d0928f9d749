// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"strings"
)

// nriFacts returns the facts about the surroundings of a kubecri that is an NRI plugin. What is
// about the kubelet's endpoint and restart is left out.
func (e *Enrolment) nriFacts(ctx context.Context, s *surroundings) []Fact {
	socket := e.nriSocketFact()
	facts := []Fact{e.nodeFact(ctx, s), e.nriRuntimeFact(ctx, s), socket}
	if socket.Risk == None {
		facts = append(facts, e.registrationFact(ctx, s, e.options.NRI.Socket), e.validatorFact(ctx, s))
	}
	facts = append(facts, e.cdiFact(ctx, s), e.clockFact(ctx, s), e.programFact(ctx))
	facts = append(facts, e.pluginFacts(ctx, s)...)
	facts = append(facts, e.managerFacts(ctx, s)...)
	return append(facts, e.nriHoldersFact(s), e.diskFact())
}

// nriRuntimeFact is about the container runtime, whose CRI kubecri reads lists of containers from.
func (e *Enrolment) nriRuntimeFact(ctx context.Context, s *surroundings) Fact {
	version, err := e.options.Runtimes.Version(ctx, s.kubelet.Endpoint)
	if err != nil {
		return fact("runtime", "%s does not answer: %v", s.kubelet.Endpoint, err).
			blocks("name the endpoint that the kubelet calls, as criUpstream in kubecri's configuration")
	}
	return fact("runtime", "%s", version)
}

// nriSocketFact is about the socket where kubecri registers.
func (e *Enrolment) nriSocketFact() Fact {
	socket := e.options.NRI.Socket
	if !e.options.Host.exists(socket) {
		return fact("NRI", "%s does not exist", socket).blocks("switch NRI on in the container runtime (containerd " +
			"2.2, CRI-O 1.34 or later), name its socket as nriSocket in kubecri's configuration, or use the proxy")
	}
	return fact("NRI", "on")
}

// nriHoldersFact is about the pods that hold devices of the kubelet. No restart disturbs them.
func (e *Enrolment) nriHoldersFact(s *surroundings) Fact {
	holders := s.holders()
	if len(holders) == 0 {
		return fact("holders", "no pod holds a device of the kubelet")
	}
	found := fact("holders", "devices of the kubelet are held by %s", strings.Join(holders, ", "))
	if files, err := e.pluginFiles(); (err != nil || len(files) > 0) && !e.options.OtherDevices {
		return found.blocks("a plugin file for the same devices does not know these pods, and others would be given " +
			"what they hold: enrol when these pods are gone")
	}
	return found.notice("they keep them")
}
