// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// Where the kubelet's kubeconfig is elsewhere, the pods on nodes do not become ready, and their
// logs name the file and the value of the chart that says where it is.
func TestAKubeconfigThatIsNotOnTheNodeIsNamedInTheAgentsLog(t *testing.T) {
	clustertest.OnlyInFull(t, "pkg/node/enrolment has a test without a cluster")
	s := begin(t)
	const missing = "/etc/kubernetes/missing.conf"
	s.helm(append(s.install(values()), "--set=node.kubeconfig="+missing)...)
	s.label(`"true"`)
	clustertest.AwaitSuccess(s.ctx, s, "the agent's log to name "+missing, func() error {
		said, err := shared.Kubectl(s.ctx, "--namespace="+system, "logs", "--selector=app.kubernetes.io/component=node",
			"--tail=-1")
		if err == nil && (!strings.Contains(said, missing+" does not exist on this node") ||
			!strings.Contains(said, "node.kubeconfig")) {
			err = fmt.Errorf("it says %s", said)
		}
		return err
	})
	s.awaitEnrolled(0)
	s.helm("uninstall", "kubedevice", "--wait", "--timeout=2m")
	s.label("null")
	s.checkBystander()
	s.checkKubelets()
	s.checkNothingIsLeft()
}
