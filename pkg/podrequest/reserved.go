// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podrequest

import "regexp"

// reserved is what the policy kubedevice-pod-allocations refuses in the annotation of a pod that
// anyone but the scheduler writes.
var reserved = regexp.MustCompile(`(?i)\\|devrequests|allocatefrom|nodename`)

// Reserved returns where an annotation has words that only the scheduler may write, or a backslash,
// with which they could be spelled differently: begin and end in bytes.
func Reserved(annotation string) [][]int { return reserved.FindAllStringIndex(annotation, -1) }
