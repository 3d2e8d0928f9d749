// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
)

// kindPair is a device plugin with the scheduler plugin that belongs to it.
const kindPair = "pair of plugins"

// pairChecks are checks of a device plugin, after those of its scheduler plugin.
func pairChecks() []check[*devicePlugin] {
	return []check[*devicePlugin]{{
		name:  "pair",
		about: "The device plugin serves what the scheduler plugin allocates on the node that it reports.",
		fix:   "use the same levels and resources in both plugins",
		needs: []string{kindScheduler + "/" + placesCheck, kindDevice + "/allocate-valid"},
		run:   (*devicePlugin).checkPair,
	}}
}

func (d *devicePlugin) checkPair() error {
	if len(d.placed) == 0 {
		return notApplicable("the scheduler plugin has allocated nothing")
	}
	if _, err := d.available(); err != nil {
		return err
	}
	for _, p := range d.placed {
		got := false
		for _, name := range slices.Sorted(maps.Keys(p.Pod.RunningContainers)) {
			container := p.Pod.RunningContainers[name]
			answer, err := d.allocate(p.Pod.Clone(), container.Clone())
			if err != nil {
				return fmt.Errorf("for a pod that requests %s, %w", p.What, err)
			}
			copied := inject.NewAddition("", answer).Allocation
			if err := merged(copied); err != nil {
				return fmt.Errorf("for a pod that requests %s, kubecri refuses the answer: %w", p.What, err)
			}
			got = got || !isEmpty(copied)
		}
		if !got {
			return fmt.Errorf("a pod that requests %s is allocated devices, and gets nothing for them", p.What)
		}
	}
	return nil
}
