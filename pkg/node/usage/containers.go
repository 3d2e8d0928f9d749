// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// relist is how old the runtime's list may be by which a process is of no container.
const relist = time.Minute

// containers knows the containers of the runtime by ID. It lists them only for a process in a
// cgroup that no process was in at the last list: IDs are not used twice.
type containers struct {
	runtime grants.Runtime

	known  map[string]Identity // by ID
	listed time.Time           // when the runtime listed them

	// foreign and before are the cgroups of no container in which processes were in this scan, and
	// in the one before.
	foreign, before map[string]bool

	tried bool  // to list them in this scan
	err   error // of that
}

// begin begins a scan.
func (c *containers) begin(now time.Time) {
	c.tried, c.err = false, nil
	c.before, c.foreign = c.foreign, map[string]bool{}
	if now.Sub(c.listed) >= relist {
		c.before = nil
	}
}

// owner returns the container of a process by what /proc says of its cgroups. known is false for a
// process of no container.
func (c *containers) owner(ctx context.Context, now time.Time, cgroups string) (owner Identity, known bool, err error) {
	if owner, known = c.find(cgroups); known {
		return owner, true, nil
	}
	if !c.tried && !c.before[cgroups] && !c.foreign[cgroups] {
		c.tried, c.err = true, c.list(ctx, now)
		owner, known = c.find(cgroups)
	}
	if c.err == nil && !known {
		c.foreign[cgroups] = true
	}
	return owner, known, c.err
}

// find returns the known container that the cgroups name. The outermost counts: below its own, a
// container may make cgroups of any name. Hierarchies of version 1 must agree.
func (c *containers) find(cgroups string) (owner Identity, known bool) {
	for _, ids := range idsIn(cgroups) {
		for _, id := range ids {
			found, ok := c.known[id]
			if !ok {
				continue
			}
			if known && found.ID != owner.ID {
				return Identity{}, false
			}
			owner, known = found, true
			break
		}
	}
	return owner, known
}

// list lists the runtime's containers.
func (c *containers) list(ctx context.Context, now time.Time) error {
	pods, err := c.runtime.Pods(ctx)
	if err != nil {
		return fmt.Errorf("find the containers of processes that use devices: %w", err)
	}
	c.known, c.listed = map[string]Identity{}, now
	for uid, pod := range pods {
		for _, container := range pod.Containers {
			c.known[container.ID] = Identity{
				PodUID: uid, Namespace: pod.Namespace, Pod: pod.Name, Name: container.Name, ID: container.ID,
			}
		}
	}
	return nil
}
