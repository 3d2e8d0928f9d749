// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"fmt"

	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

func (a *Admission) sealMode() seal.Mode {
	if a.Seals == nil {
		return seal.Off
	}
	return cmp.Or(a.Seals.Mode(), seal.Off)
}

// Results of a verification that are no seal.Reason.
const (
	SealValid  = "valid"
	SealNoKeys = "no_keys"
)

// verifySeal checks that the scheduler made the allocation that the pod claims, for this pod and
// this node. A pod that was granted devices before needs no seal: that is verified once,
// before its first device, and once more where the node has requested another one; see Replace.
func (a *Admission) verifySeal(r *request) error {
	mode := a.sealMode()
	if mode == seal.Off {
		return nil
	}
	result, err := a.checkSeal(r)
	a.Metrics.ObserveSeal(result)
	a.Seals.Observe(result)
	if err != nil && mode == seal.Warn {
		a.Events.WarnNotSealed(r.object(),
			fmt.Sprintf("%v (it gets its devices all the same, until --seal-mode is %s)", err,
				seal.Enforce))
		return nil
	}
	return err
}

func (a *Admission) checkSeal(r *request) (result string, err error) {
	verifier, err := a.Seals.Verifier()
	if err != nil {
		return SealNoKeys, unavailable(fmt.Errorf("pod %q: whether the scheduler made its allocation is not known: %w",
			r.namespace+"/"+r.name, err))
	}
	r.generation, err = verifier.Generation(r.seal, seal.Decision{
		UID: apitypes.UID(r.uid), Namespace: r.namespace, Name: r.name, Node: a.NodeName,
		Allocation: seal.DigestOf(r.claimed),
	})
	switch reason := seal.ReasonOf(err); reason {
	case "":
		return SealValid, nil
	case seal.UnknownKey:
		return string(reason), unavailable(err) // its certificate may be on the way
	default:
		return string(reason), failedPreconditionOn(basedOnSeal, err) // no key that the node gets makes it valid
	}
}
