// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// handle is one plugin: what calls it, and what it says of itself, which it is asked once. It is
// safe for concurrent use.
type handle struct {
	devicescheduler.DeviceScheduler
	*pluginhost.Plugin

	groups     bool // leaves placement to the group scheduler
	claimed    []types.ResourceName
	counted    []devicescheduler.CountedDevice
	translated []devicescheduler.TranslatedResource
	kinds      *kinds                          // nil for a plugin that may have to do with everything
	allocator  Allocator                       // nil for a plugin that is none
	afterWait  devicescheduler.DeviceScheduler // nil for a plugin that has no pod wait
	// preferring serves pods that do not say whether they wait. It is nil for a plugin that cannot,
	// and in a cluster that requires topology.
	preferring   devicescheduler.DeviceScheduler
	displayNames devicescheduler.Words
	observer     *pluginhost.Observer // nil for a plugin that keeps no counters of its own

	cachedAnswers
}

// newHandle asks the plugin what it says of itself. A panic while asking is returned as an error.
func newHandle(named Named, clk clock.WithTicker, recorder Recorder, sizes sizes) (h *handle, err error) {
	defer func() {
		if r := recover(); r != nil {
			h, err = nil, fmt.Errorf("query %q for its name and abilities: panic: %v", named.File, r)
		}
	}()
	plugin := named.Plugin
	h = &handle{DeviceScheduler: plugin}
	name := strings.ToValidUTF8(cmp.Or(h.GetName(), named.File), "\uFFFD") // labels of metrics take nothing else
	h.groups = h.UsingGroupScheduler()
	if claimer, ok := plugin.(devicescheduler.ResourceClaimer); ok {
		h.claimed = slices.Clone(claimer.ClaimedResources())
	}
	if counter, ok := plugin.(devicescheduler.DeviceCounter); ok {
		h.counted = slices.Clone(counter.CountedDevices())
	}
	if translating, ok := plugin.(devicescheduler.Translating); ok {
		h.translated = slices.Clone(translating.TranslatedResources())
	}
	if specialist, ok := plugin.(devicescheduler.Specialist); ok {
		h.kinds = newKinds(specialist.Kinds())
	}
	if allocator, ok := plugin.(Allocator); ok {
		h.allocator = allocator
	}
	if patient, ok := plugin.(devicescheduler.Patient); ok {
		h.afterWait = patient.AfterWait()
	}
	if preferring, ok := plugin.(devicescheduler.Preferring); ok {
		h.preferring = preferring.Preferring()
	}
	h.cachedAnswers.init(plugin, h.groups, sizes)
	if describer, ok := plugin.(devicescheduler.Describer); ok {
		h.displayNames = describer.Words()
	}
	safe, ok := plugin.(devicescheduler.ConcurrentSafe)
	h.Plugin = pluginhost.New(pluginhost.Options{
		Name: name, Concurrent: ok && safe.ConcurrentSafe(), BoundsItself: h.allocator != nil,
		Clock: clk, Recorder: recorder,
	})
	if pods, ok := plugin.(devicescheduler.PodObserver); ok {
		h.observer = pluginhost.NewObserver(h.Plugin, pods)
	}
	return h, nil
}

// call makes a call of the plugin that is about a node, and no more.
func call[T any](ctx context.Context, h *handle, method, node string, fn func() (T, error)) (T, error) {
	return pluginhost.Do(ctx, h.Plugin, &pluginhost.Call{Method: method, Subject: pluginhost.Subject{Node: node}}, fn)
}

// Named is a plugin and the name of the file that it came from.
type Named struct {
	File   string
	Plugin devicescheduler.DeviceScheduler
}
