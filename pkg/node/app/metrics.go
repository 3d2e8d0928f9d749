// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"
	"k8s.io/component-base/metrics"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/holders"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/policing"
	"github.com/kubedevice/kubedevice/pkg/node/seals"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// subsystem begins the name of every metric.
const subsystem = "kubecri"

// nodeMetrics are what /metrics shows. The names are public, and docs/reference/metrics.md lists
// them.
type nodeMetrics struct {
	registry   metrics.KubeRegistry
	methods    map[string]bool // see criMethods
	calls      *metrics.CounterVec
	callTime   *metrics.HistogramVec
	addedTime  *metrics.HistogramVec
	containers *metrics.CounterVec
	plugins    *metrics.CounterVec
	pluginTime *metrics.HistogramVec
	patches    *metrics.CounterVec
	findings   *metrics.CounterVec
	seals      *metrics.CounterVec
	attempts   *metrics.CounterVec
	evictions  *metrics.CounterVec
	exceeded   *metrics.CounterVec
	missing    *metrics.CounterVec

	replacements *metrics.CounterVec
	omitted      *metrics.GaugeVec
	conflicts    *metrics.GaugeVec
}

// newNodeMetrics registers the counters and the metrics of the process.
func newNodeMetrics() *nodeMetrics {
	m := &nodeMetrics{
		registry: metrics.NewKubeRegistry(),
		methods:  criMethods(),
		calls: counter("cri_calls_total", "Number of calls to the container runtime, by method and status code.",
			"method", "code"),
		callTime: seconds(0.0005, "cri_call_duration_seconds",
			"Duration of calls to the container runtime in seconds, including the runtime's own time, by method.",
			"method"),
		addedTime: seconds(0.00005, "cri_call_added_seconds",
			"Part of the duration of calls in seconds that was not spent waiting for the container runtime, by method.",
			"method"),
		containers: counter("containers_total",
			"Containers that were created or refused, by outcome: passed, injected, isolated or refused.", "outcome"),
		plugins: counter("plugin_calls_total",
			"Calls into device plugins, by plugin, call and outcome: ok or error.", "plugin", "call", "outcome"),
		pluginTime: seconds(0.0005, "plugin_call_duration_seconds",
			"Duration of calls into device plugins in seconds, by plugin and call.", "plugin", "call"),
		patches: counter("node_patches_total",
			"Patches of the node's devices in the API server, by outcome: ok or error.", "outcome"),
		findings: counter("grant_annotations_ignored_total",
			"Containers in the container runtime whose annotation KubeDevice/Grant does not count, by reason: "+
				"unsigned, forged, unreadable, conflicting or missing.", "reason"),
		seals: counter("seals_total",
			"Seals that were verified before a pod was granted devices, by result: valid, no_keys, or why it is not.",
			"result"),
		attempts: counter("device_firewall_attempts_total",
			"Requests of containers for devices that bypass the scheduler, by vendor, way (env, annotation, mount, "+
				"cdi or restore) and action: neutralised, refused or allowed.", "vendor", "way", "action"),
		evictions: counter("device_evictions_total",
			"Attempts to evict pods whose devices had failed or were tainted, or that used more than their share, by "+
				"outcome: evicted, blocked (by a budget) "+
				"or error.",
			"outcome"),
		exceeded: counter("device_shares_exceeded_total",
			"What was done about containers that used more than their share of a device's memory, by action: warned, "+
				"evicted, ended, or failed to end.", "action"),
		missing: counter("containers_without_devices_total",
			"Containers that were allocated devices of a vendor whose container runtime did not start them, so that "+
				"no program added the devices, by vendor and runtime handler (empty for the default one).",
			"vendor", "handler"),
		omitted: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Subsystem: subsystem, Name: "devices_unpublished", StabilityLevel: metrics.ALPHA,
			Help: "1 for each device plugin whose devices are not published because the inventory is too large, " +
				"by plugin.",
		}, []string{"plugin"}),
		conflicts: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Subsystem: subsystem, Name: "resource_conflicts", StabilityLevel: metrics.ALPHA,
			Help: "1 for each resource that a plugin does not offer, because the kubelet or another plugin has it, " +
				"by resource.",
		}, []string{"resource"}),
		replacements: counter("device_replacements_total",
			"Allocations by which the scheduler gave other devices to containers that run, by outcome: taken, or "+
				"refused by this node.", "outcome"),
	}
	m.registry.MustRegister(m.calls, m.callTime, m.addedTime, m.containers, m.plugins, m.pluginTime, m.patches,
		m.findings, m.seals, m.attempts, m.evictions, m.exceeded, m.missing, m.replacements, m.omitted, m.conflicts)
	for _, outcome := range []string{replacementTaken, replacementRefused} {
		m.replacements.WithLabelValues(outcome)
	}
	for _, outcome := range devicehealth.Outcomes() {
		m.evictions.WithLabelValues(string(outcome))
	}
	for _, action := range policing.Actions() {
		m.exceeded.WithLabelValues(string(action))
	}
	for _, reason := range grants.Reasons() {
		m.findings.WithLabelValues(string(reason)) // so that the first of each shows as an increase
	}
	m.registry.RawMustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector())
	return m
}

func counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: subsystem, Name: name, Help: help,
		StabilityLevel: metrics.ALPHA}, labels)
}

// seconds returns a histogram whose nine buckets grow fourfold from the first.
func seconds(first float64, name, help string, labels ...string) *metrics.HistogramVec {
	return metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(first, 4, 9),
	}, labels)
}

// gauge registers a metric whose value is read when it is collected.
func (m *nodeMetrics) gauge(name, help string, value func() float64) {
	m.registry.RawMustRegister(metrics.NewGaugeFunc(
		&metrics.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, value))
}

// showGrants registers what there is to say of the checkpoint.
func (m *nodeMetrics) showGrants(checkpoint *grants.Checkpoint) {
	m.gauge("grants", "Pods that hold devices of this node.", func() float64 { return float64(len(checkpoint.List())) })
	m.gauge("grants_damaged",
		"1 if the checkpoint of granted devices was corrupt when kubecri started, and was made again from the runtime.",
		func() float64 { return oneIf(checkpoint.WasCorrupt()) })
	m.gauge("grants_unsaved",
		"1 while the checkpoint of granted devices cannot be written, as when the disk is full: no pod is granted a "+
			"device then.",
		func() float64 { return oneIf(checkpoint.IsUnsaved()) })
}

// showRegistration registers what there is to say of NRI.
func (m *nodeMetrics) showRegistration(registration *nri.Registration) {
	m.gauge("nri_registered", "1 while the container runtime has registered kubecri as an NRI plugin.",
		func() float64 { return oneIf(registration.Registered()) })
}

// showNode registers what there is to say of the node's object in the API server.
func (m *nodeMetrics) showNode(advertiser *advertise.Advertiser) {
	m.gauge("node_published",
		"1 while the Node is known to show the devices as they are.",
		func() float64 { return oneIf(advertiser.Check() == nil) })
	m.gauge("node_published_timestamp_seconds",
		"Time at which the Node was last known to show the devices as they are, in seconds since 1970; 0 if "+
			"never.",
		func() float64 {
			if published := advertiser.Published(); !published.IsZero() {
				return float64(published.Unix())
			}
			return 0
		})
}

// ShowOmitted shows the sources whose devices are not published.
func (m *nodeMetrics) ShowOmitted(labels []string) {
	m.omitted.Reset()
	for _, label := range labels {
		m.omitted.WithLabelValues(label).Set(1)
	}
}

// ShowConflicts shows the resources that a plugin does not offer, as another one has them.
func (m *nodeMetrics) ShowConflicts(names []types.ResourceName) {
	m.conflicts.Reset()
	for _, name := range names {
		m.conflicts.WithLabelValues(string(name)).Set(1)
	}
}

// showSeals registers what there is to say of keys, and of pods without a valid seal.
func (m *nodeMetrics) showSeals(keys *seals.Keys, holders *holders.Controller, agreement *seals.Agreement) {
	m.gauge("seal_keys", "Keys by which the seals of pods are verified.", func() float64 {
		verifier, _, err := keys.Verifier()
		if err != nil {
			return 0
		}
		return float64(len(verifier.KeyIDs()))
	})
	m.gauge("unsealed_holders", "Pods that hold devices of this node without a valid seal, which the node reports.",
		func() float64 {
			list, _, _ := holders.Holders()
			return float64(len(list))
		})
	m.gauge("seal_mode_conflict",
		"1 while the seal mode of the node is stronger than that of the scheduler; /readyz has the reason.",
		func() float64 { return oneIf(agreement.Conflict() != "") })
	for _, reason := range append(slices.Clone(seal.Reasons), admission.SealValid, admission.SealNoKeys) {
		m.seals.WithLabelValues(string(reason)) // so that each is there, at 0
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (m *nodeMetrics) handler() http.Handler {
	return metrics.HandlerFor(m.registry, metrics.HandlerOpts{})
}

func (m *nodeMetrics) ObserveContainer(outcome admission.Outcome) {
	m.containers.WithLabelValues(string(outcome)).Inc()
}

func (m *nodeMetrics) ObserveFirewall(attempt firewall.Attempt, action admission.FirewallAction) {
	m.attempts.WithLabelValues(attempt.Vendor, string(attempt.Way), string(action)).Inc()
}

func (m *nodeMetrics) ObserveEviction(outcome devicehealth.Outcome) {
	m.evictions.WithLabelValues(string(outcome)).Inc()
}

// ObserveShareExceeded implements policing.Metrics.
func (m *nodeMetrics) ObserveShareExceeded(action policing.Action) {
	m.exceeded.WithLabelValues(string(action)).Inc()
}

// The outcomes of replacements.
const replacementTaken, replacementRefused = "taken", "refused"

func (m *nodeMetrics) ObserveReplacement(taken bool) {
	outcome := replacementRefused
	if taken {
		outcome = replacementTaken
	}
	m.replacements.WithLabelValues(outcome).Inc()
}

func (m *nodeMetrics) ObservePlugin(plugin, call string, took time.Duration, err error) {
	m.plugins.WithLabelValues(plugin, call, outcomeOf(err)).Inc()
	m.pluginTime.WithLabelValues(plugin, call).Observe(took.Seconds())
}

func (m *nodeMetrics) ObserveSeal(result string) { m.seals.WithLabelValues(result).Inc() }

func (m *nodeMetrics) ObservePatch(err error) {
	m.patches.WithLabelValues(outcomeOf(err)).Inc()
}

func outcomeOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// ObserveCall counts a call to the runtime.
func (m *nodeMetrics) ObserveCall(call criproxy.Call) {
	method := call.Method
	if _, known := m.methods[method]; !known {
		method = otherLabel
	}
	code := call.Code.String()
	if call.Code > codes.Unauthenticated {
		code = otherLabel
	}
	m.calls.WithLabelValues(method, code).Inc()
	m.callTime.WithLabelValues(method).Observe(call.Took.Seconds())
	m.addedTime.WithLabelValues(method).Observe((call.Took - call.Waited).Seconds())
}

// otherLabel is the label of all methods and codes that this release does not know, so that their
// number has a limit.
const otherLabel = "other"
