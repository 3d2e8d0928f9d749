// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics that KubeDevice adds to upstream's scheduler. They are served on
// its /metrics; docs/reference/metrics.md lists them.
package metrics

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
)

// The metrics. Their help texts say what they count.
var (
	// ForgedAllocations counts a pod each time that it is given a node, and each version of a bound
	// pod's annotation. A forged allocation of a pod that is not bound does no harm, since binding
	// overwrites it, but the admission policies would have refused the pod.
	ForgedAllocations = counter("forged_allocations_total",
		"Pods whose device annotation has an allocation that the scheduler did not write: pods that come with one, "+
			"and bound pods whose allocation is that of another pod or node. "+
			"More than 0 means that the admission policies are not in force.")
	PoliciesMissing = gauge("admission_policies_missing",
		"Admission policies that are not installed or not bound, or that the scheduler may not read. "+
			"Without them users can forge allocations and inventories.")
	PolicyProblems = gauges("admission_policy_problems",
		"1 for each way in which an installed admission policy differs from the one that the scheduler was built "+
			"with, by policy and reason: missing, unbound, outdated (it is another release's), not_denying (its "+
			"binding only reports), narrowed (its binding leaves requests out), parameters, failure_policy, "+
			"match_constraints, match_conditions, variables, validations (one is missing), unknown (the scheduler "+
			"may not read it).",
		"policy", "reason")

	// UnsealedPods is counted by leader and standbys.
	UnsealedPods = gauges("unsealed_pods",
		"Bound pods with an allocation but without a valid seal, by reason: missing, malformed, unknown_key, "+
			"bad_signature, other_pod, other_node, other_allocation. With --device-seal-mode=enforce they hold only "+
			"what their nodes report. Always 0 with --device-seal-mode=off.",
		"reason")
	// DevicePodsOnOwnNode is counted by leader and standbys.
	DevicePodsOnOwnNode = gauge("device_pods_on_own_node",
		"Pods with devices on the node of this scheduler's own pod. A process that breaks out of one of them has the "+
			"scheduler's key for seals and its token. 0 where the scheduler runs in no pod.")
	// UnallocatedPods is counted by the leader alone, in rounds.
	UnallocatedPods = gauge("unallocated_pods",
		"Pods that request devices and were bound without any: by another scheduler, or at their creation. They "+
			"do not start on their nodes. Counted by the scheduler that leads, 0 on all others.")
	// DeviceReplacements is counted by the leader alone.
	DeviceReplacements = counters("device_replacements_total",
		"Attempts to allocate other devices to a container of a bound pod because its node reports the previous ones "+
			"as unhealthy, by outcome: written, no_device (none of the node fits), conflict (the pod was changed; it "+
			"is tried again), error.",
		"outcome")
	SealKeyReloads = counters("seal_key_reloads_total",
		"Number of reloads of the file --device-seal-key, by outcome: changed (its keys are in use), failed (it "+
			"is missing or malformed, and the previous keys stay in use).",
		"outcome")

	// PluginCalls also counts calls that were not made because of an earlier failure.
	PluginCalls = counters("plugin_calls_total",
		"Calls into device scheduler plugins, by plugin, method and outcome: answered, error (the plugin returned "+
			"one), panic, timeout; and calls that were not made: back_off (the request, the node or a pod that holds "+
			"its devices made the plugin fail), quarantined (the plugin has failed for several nodes), not_returned "+
			"(an earlier call has not).",
		"plugin", "method", "outcome")
	// PluginCallDuration has the calls that were made. The limit of a call is one second.
	PluginCallDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, StabilityLevel: metrics.ALPHA, Name: "plugin_call_duration_seconds",
		Help: "Duration of calls into device scheduler plugins in seconds, by plugin and method, without the time " +
			"in the queue.",
		Buckets: metrics.ExponentialBuckets(0.00001, 4, 9), // 10 µs to 0.66 s
	}, []string{"plugin", "method"})
	PluginFailures = counters("plugin_failures_total",
		"Failed calls into device scheduler plugins by what they are blamed on, for which the plugin is not called "+
			"in a back-off: request, node, holder (a pod that holds devices of a node), plugin (it is quarantined), "+
			"or nothing.",
		"plugin", "blamed")
	PluginQuarantined = gauges("plugin_quarantined",
		"1 while a device scheduler plugin is not called for any pod, because it is quarantined or a call has not "+
			"returned, else 0. No pod that requests its devices is scheduled in that time, nor one that requests "+
			"others unless all plugins are specialists.",
		"plugin")
	PluginCallsOverdue = gauges("plugin_calls_overdue",
		"Calls into a device scheduler plugin that have not returned within their limit and still run. A plugin "+
			"that is not safe for concurrent use is not called before they return.",
		"plugin")
	// StepLimitHits also counts cached answers.
	StepLimitHits = counter("step_limit_hits_total",
		"Searches for a pod on a node that --device-search-budget stopped: the pod may have got other "+
			"devices than the best, or been refused although it fits.")
	NodesNotSearched = counter("nodes_not_searched_total",
		"Searches for a pod on a node that were not made because the budget of the scheduling cycle, "+
			"--device-cycle-budget, was used up. The pod is tried again, with other nodes first.")

	// ClaimsLeftToUpstream counts a pod once in a scheduling cycle.
	ClaimsLeftToUpstream = counters("claims_left_to_upstream_total",
		"Scheduling cycles of pods with ResourceClaims in which upstream's allocator chose the devices although "+
			"claims is kubedevice, by reason: claim_feature, pool_feature, feature_gate, pod_group, extended_resource "+
			"(what is not modelled), error (upstream's allocator reports it), budget (the search took too many steps).",
		"reason")
	ClaimDisagreements = counter("claim_disagreements_total",
		"Times that upstream's allocator refused the devices that were chosen for a pod's ResourceClaims, and chose "+
			"others. Each of them is a bug: please report it with the log of the scheduler.")

	VerdictCacheHits = counter("verdict_cache_hits_total",
		"Verdicts on nodes that were known when the scheduling cycle of a device pod began.")
	VerdictCacheMisses = counter("verdict_cache_misses_total",
		"Verdicts on nodes that were not known, and were computed in the scheduling cycle of a device pod.")
	VerdictCacheSize = gauge("verdict_cache_size",
		"Verdicts that are cached, each of one request on one node.")
	VerdictCacheInvalidations = counters("verdict_cache_invalidations_total",
		"Verdicts that were dropped from the cache, by reason: inventory, reservation, node_info (what else changed "+
			"on the node), node_removed, plugins (they changed their answers, or do not answer), step_limit (the "+
			"search for devices was stopped), request_evicted, tolerations (of taints of the node's devices).",
		"reason")
)

const (
	namespace = "kubedevice"
	subsystem = "scheduler"
)

func counterOpts(name, help string) *metrics.CounterOpts {
	return &metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, StabilityLevel: metrics.ALPHA, Name: name, Help: help,
	}
}

func gaugeOpts(name, help string) *metrics.GaugeOpts {
	return (*metrics.GaugeOpts)(counterOpts(name, help))
}

func counter(name, help string) *metrics.Counter { return metrics.NewCounter(counterOpts(name, help)) }

func counters(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(counterOpts(name, help), labels)
}

func gauge(name, help string) *metrics.Gauge { return metrics.NewGauge(gaugeOpts(name, help)) }

func gauges(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(gaugeOpts(name, help), labels)
}

// All returns all metrics of this package.
func All() []metrics.Registerable {
	return []metrics.Registerable{
		ForgedAllocations, PoliciesMissing, PolicyProblems, StepLimitHits, NodesNotSearched, UnsealedPods,
		DevicePodsOnOwnNode,
		SealKeyReloads, UnallocatedPods, DeviceReplacements,
		PluginCalls, PluginCallDuration, PluginFailures, PluginQuarantined, PluginCallsOverdue,
		ClaimsLeftToUpstream, ClaimDisagreements,
		VerdictCacheHits, VerdictCacheMisses, VerdictCacheSize, VerdictCacheInvalidations,
	}
}

// Register adds the metrics to the scheduler's registry, once. Values that were set before are
// lost.
var Register = sync.OnceFunc(func() { legacyregistry.MustRegister(All()...) })

// recorder turns what the device schedulers do into metrics.
type recorder struct{}

var _ allocation.Recorder = recorder{}

// NewRecorder registers the metrics and returns the recorder that sets those of device schedulers.
func NewRecorder() allocation.Recorder {
	Register()
	return recorder{}
}

func (recorder) Called(plugin, method string, outcome pluginhost.Outcome, took time.Duration) {
	PluginCalls.WithLabelValues(plugin, method, string(outcome)).Inc()
	switch outcome {
	case pluginhost.OutcomeQuarantined, pluginhost.OutcomeBackOff, pluginhost.OutcomeBlocked:
	default:
		PluginCallDuration.WithLabelValues(plugin, method).Observe(took.Seconds())
	}
}

func (recorder) Blamed(plugin string, blamed pluginhost.Blamed) {
	PluginFailures.WithLabelValues(plugin, string(blamed)).Inc()
}

func (recorder) Quarantined(plugin string, quarantined bool) {
	value := 0.0
	if quarantined {
		value = 1
	}
	PluginQuarantined.WithLabelValues(plugin).Set(value)
}

func (recorder) Overdue(plugin string, calls int) {
	PluginCallsOverdue.WithLabelValues(plugin).Set(float64(calls))
}

func (recorder) StepLimitHit() { StepLimitHits.Inc() }

func (recorder) NotSearched() { NodesNotSearched.Inc() }
