// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
)

// layout is where a cluster keeps its files.
type layout struct{ dir string }

func (l layout) kubeconfig() string         { return filepath.Join(l.dir, "kubeconfig") }
func (l layout) state() string              { return filepath.Join(l.dir, "state.json") }
func (l layout) logs() string               { return filepath.Join(l.dir, "logs") }
func (l layout) kubectlCache() string       { return filepath.Join(l.dir, "kubectl-cache") }
func (l layout) pki(name string) string     { return filepath.Join(l.dir, "pki", name) }
func (l layout) sandbox(name string) string { return filepath.Join(l.dir, "sandboxes", name) }
func (l layout) config(sandbox, name string) string {
	return filepath.Join(l.dir, "config", sandbox, name)
}

func (l layout) log(sandbox, name string) string {
	return filepath.Join(l.logs(), sandbox, name+".log")
}

// perishable is what does not outlive the cluster: everything but its logs, and the programs that
// may be in the same directory.
func (l layout) perishable() []string {
	return []string{
		l.kubeconfig(), l.state(), l.kubectlCache(),
		filepath.Join(l.dir, "pki"), filepath.Join(l.dir, "config"), filepath.Join(l.dir, "sandboxes"),
	}
}

// CgroupName is the name of the cgroup, in every hierarchy, of the cluster in a directory. It
// follows from the directory alone, so that what is left of a cluster can be found with nothing
// but the directory's name.
func CgroupName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "kubedevice-" + hex.EncodeToString(sum[:6])
}

// The cluster's network. Each cluster has network namespaces of its own, so all clusters use the
// same addresses.
const (
	controlPlaneSandbox = "control-plane"
	controlPlaneIP      = "10.77.0.1"
	apiServerURL        = "https://" + controlPlaneIP + ":443"
	serviceRange        = "10.96.0.0/16"
	// serviceIP is the address of the service "kubernetes". No kube-proxy is needed for it: the
	// control plane has it.
	serviceIP = "10.96.0.1"
	// schedulerPort is where the scheduler serves, on 127.0.0.1 of the control plane.
	schedulerPort = 10259
)

// DevicesPort is where KubeDevice's scheduler serves its read API, on 127.0.0.1 of the control
// plane, if it is started with [ServesDevices].
const DevicesPort = "10262"

// ServesDevices is the scheduler's argument for that.
const ServesDevices = "--devices-secure-port=" + DevicesPort

func nodeName(index int) string { return fmt.Sprintf("node-%d", index+1) }
func nodeIP(index int) string   { return fmt.Sprintf("10.77.0.%d", index+11) }
func podRange(index int) string { return fmt.Sprintf("10.78.%d.0/24", index+1) }
