// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attack attacks a real cluster: a table of attempts, each from the attacker's own
// identity, with what must come of it and with which text it is refused. The table is played with
// the admission policies and seals, with seals alone, and with the policies alone. Each attempt is
// also made with its own defence switched off, and must succeed there: one that cannot succeed
// proves nothing.
//
// Where kubecri on the node has to do with the outcome, all of this is played twice: with kubecri
// as a proxy of the CRI, and as an NRI plugin of the runtime. What a container got is read from the
// config.json that the OCI runtime got, not from what the pod requested.
//
// The attempts are in the files of the directory attempts, one for each table of
// README.md, which is generated from them. An attempt has its text, what must come
// of it by setting, a pod as a manifest, and steps: a step is a verb with its arguments. The types
// of attempts.go describe the fields, verbs has the verbs, and variables what stands for ${name} in
// steps and pods. A family is a list of attempts with what they have in common.
package attack

import (
	"fmt"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// Who is an attacker, and what it has: real credentials of a real identity.
type Who string

// The attackers.
const (
	// Tenant is a service account with the role edit in its own namespace.
	Tenant Who = "tenant"
	// Controller is a tenant's service account that may write pods/status and bindings as well.
	Controller Who = "controller"
	// Labeller is a service account that may patch nodes and their status.
	Labeller Who = "node labeller"
	// Kubelet has the certificate of another node's kubelet.
	Kubelet Who = "other kubelet"
	// Agent has the token of the chart's agent on another node.
	Agent Who = "other node's agent"
	// Plugin is a process that can reach the directory of the device plugins.
	Plugin Who = "device plugin"
	// LocalUser is a process on the node that is not root.
	LocalUser Who = "local user"
	// NodeAdmin is root on the node.
	NodeAdmin Who = "node admin"
	// Anonymous has the cluster's addresses and no credentials.
	Anonymous Who = "anonymous"
)

// Defence is what stands against an attempt.
type Defence string

// The defences.
const (
	Policies    Defence = "policies, seals"
	Seals       Defence = "seals"
	Inventory   Defence = "policies, own node only"
	OneNode     Defence = "each node for itself"
	Checks      Defence = "node's checks"
	Decoder     Defence = "strict decoder"
	Grants      Defence = "granted once"
	MAC         Defence = "MAC"
	Firewall    Defence = "device firewall"
	Validator   Defence = "runtime's validator"
	Quota       Defence = "quota"
	Bounds      Defence = "bounds"
	Containment Defence = "faults contained"
	Trust       Defence = "plugin trust"
	Rights      Defence = "RBAC"
	Permissions Defence = "file modes"
	Loopback    Defence = "loopback only"
	Placement   Defence = "control planes only"
	PlainText   Defence = "plain text"
)

// Outcome is what comes of an attempt.
type Outcome string

// The outcomes.
const (
	RefusedByAPIServer Outcome = "refused by the API server"
	RefusedByNode      Outcome = "refused by the node"
	RefusedByScheduler Outcome = "refused by the scheduler"
	RefusedByProgram   Outcome = "refused by the program"
	NoEffect           Outcome = "no effect"
	Succeeds           Outcome = "succeeds"
)

// Want is what must come of an attempt, and text that the refusal must contain.
type Want struct {
	Outcome Outcome `json:"outcome"`
	Words   string  `json:"says"`
}

// Got is what came of an attempt. Words are all that was said.
type Got struct {
	Outcome Outcome `json:"outcome"`
	Words   string  `json:"says"`
}

// Attempt is a row of the table.
type Attempt struct {
	// ID is unique, and a DNS label.
	ID string
	// Who makes the attempt.
	Who Who
	// What it does, as the end of a sentence that begins with Who.
	What string
	// Defence is the attempt's own: what is switched off for it to succeed.
	Defence Defence
	// Try makes the attempt and finds out what came of it. An error says that this could not be
	// found out.
	Try Try
	// Want is what must come of it, by setting.
	Want map[Setting]Want
	// NRI is what must come of it where kubecri is an NRI plugin, by setting, if that differs.
	NRI map[Setting]Want
	// Modes are those of kubecri in which the attempt is made. Nil means those of its group.
	Modes []cluster.Mode
	// Off is the counterpart.
	Off Off
	// Alone says that nothing else may be tried at the same time.
	Alone bool
	// Sample says that the attempt is in CI's sample.
	Sample bool
	// Neighbour says that the attempt was found next to a break: of the same kind, in another
	// place, and in no report of a break.
	Neighbour bool

	group string
}

// Modes are kubecri's, in the order in which they are played.
func Modes() []cluster.Mode { return []cluster.Mode{cluster.ModeCRI, cluster.ModeNRI} }

// wanted returns what must come of the attempt where its defence is on.
func (a *Attempt) wanted(mode cluster.Mode, setting Setting) Want {
	if want, differs := a.NRI[setting]; differs && mode == cluster.ModeNRI {
		return want
	}
	return a.Want[setting]
}

// tables are the files of attempts, in the order of README.md.
var tables = []string{
	"forged-allocations", "spellings", "seals", "held-devices", "inventories", "node-reports", "replacements", "quotas",
	"bounds", "lists-and-events", "messages-of-nri", "away", "devices-without-allocation", "checkpoints", "exceptions",
	"secrets-and-leases", "rights", "files", "api-and-metrics", "device-plugins", "plugin-files",
}

// Attempts returns the table. An error names the file and the attempt that cannot be read.
func Attempts() ([]*Attempt, error) {
	var all []*Attempt
	for _, table := range tables {
		attempts, err := load(table)
		if err != nil {
			return nil, fmt.Errorf("attempts/%s.yaml: %w", table, err)
		}
		all = append(all, attempts...)
	}
	return all, nil
}

// Off is the attempt with its own defence switched off.
type Off struct {
	// How says what is different, if it is not only the setting Bare.
	How string
	// Try is in the place of the attempt's own.
	Try Try
}
