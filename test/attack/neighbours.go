// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

// neighbours are the IDs of attempts that were found next to breaks: of the same kind, in another
// place, and in no report of a break.
var neighbours = []string{
	"away-forged", "away-made-up", "enlarged-bytes", "enlarged-volumes",
	"firewall-bytes", "firewall-cdi-removed", "firewall-lists", "firewall-snapshot", "firewall-sockets",
	"firewall-sockets-image", "firewall-variables-cdi",
	"label-devices-changed", "label-devices-removed", "label-devices-status", "label-enrolled-removed",
	"label-group-changed", "label-group-removed",
	"lease-future", "lease-names", "required-plugin-forged", "scheduler-address", "scheduler-lease",
	"taints-own-kubelet", "tolerate-binding", "tolerate-binding-legacy", "tolerate-container-dots", "tolerate-false",
	"tolerate-patch", "tolerate-status", "tolerate-template",
}
