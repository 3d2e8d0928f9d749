// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"

	"k8s.io/client-go/kubernetes"
)

// installation is a way for kubecri to be on a node. There are three:
//
//	installation  started by        called by              restarts the kubelet
//	cri           units of systemd  the kubelet            yes
//	systemdNRI    units of systemd  the container runtime  no
//	agentNRI      the caller        the container runtime  no
//
// The options say by which one a node is enrolled, and the journal says by which one it leaves.
type installation interface {
	// kubelet returns the node's kubelet, or the fact that says why it is not known.
	kubelet(ctx context.Context) (Kubelet, *Fact)
	// kubeconfigAdvice says what to do where the kubelet's kubeconfig does not exist.
	kubeconfigAdvice() string
	// facts returns the facts about the node.
	facts(ctx context.Context, s *nodeState) []Fact
	// holdersFact is the one of them about the pods that hold devices of the kubelet.
	holdersFact(s *nodeState) Fact
	// plan adds to a new journal what this installation changes. It changes nothing itself.
	plan(ctx context.Context, s *nodeState, j *journal) error
	// disturbsPods reports whether pods may be disturbed: then the node is cordoned meanwhile, and
	// the holders of devices are read once more before the first step.
	disturbsPods() bool
	// enrolSteps are the steps of an enrolment, without its labels. leaveSteps are those of a
	// leave: the kubelet comes first, as it must come up again even when the API server is away,
	// which the others need.
	enrolSteps(j *journal) []step
	leaveSteps(j *journal) []step
	// awaitVacated returns when the way back may begin on a node to which no pods come.
	awaitVacated(ctx context.Context, j *journal, client kubernetes.Interface) error
}
