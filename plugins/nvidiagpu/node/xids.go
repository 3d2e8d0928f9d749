// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

// The environment variables that say which XIDs are faults, as NVIDIA's device plugin reads them:
// numbers, or all, with commas between them.
const (
	DisableHealthChecks = "DP_DISABLE_HEALTHCHECKS"
	EnableHealthChecks  = "DP_ENABLE_HEALTHCHECKS"
)

// applicationXIDs are errors of an application and none of its GPU, the same as in NVIDIA's device
// plugin (v0.19.0, internal/rm/health.go), which follows
// https://docs.nvidia.com/deploy/xid-errors.
var applicationXIDs = []uint64{
	13,  // graphics engine exception
	31,  // memory page fault
	43,  // stopped processing
	45,  // cleanup after earlier errors
	68,  // video processor exception
	109, // timeout of a context switch
}

// recoveryActionXID says that what the GPU needs to recover has changed, also back to nothing. The
// GPU reports that then, so it is no fault by itself.
const recoveryActionXID = 154

// xids are a list of XIDs in the environment.
type xids struct {
	all     bool
	numbers []uint64
}

// parseXIDs reads the value of a variable. It leaves out what is no XID, and says so.
func parseXIDs(variable, value string) (list xids) {
	for word := range strings.SplitSeq(strings.ToLower(value), ",") {
		switch word = strings.TrimSpace(word); word {
		case "":
		case "all", "xids":
			list.all = true
		default:
			number, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				utils.Errorf("%s: %q is no XID and is ignored: use numbers, or all", variable, word)
				continue
			}
			list.numbers = append(list.numbers, number)
		}
	}
	return list
}

// faults says which XIDs are faults of a GPU.
type faults struct{ disabled, enabled xids }

// includes reports whether the XID is a fault: what is enabled wins over what is disabled, and that
// over the errors of applications.
func (f faults) includes(xid uint64) bool {
	switch {
	case f.enabled.all || slices.Contains(f.enabled.numbers, xid):
		return true
	case f.disabled.all || slices.Contains(f.disabled.numbers, xid):
		return false
	}
	return xid != recoveryActionXID && !slices.Contains(applicationXIDs, xid)
}
