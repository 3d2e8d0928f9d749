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
	"github.com/kubedevice/kubedevice/pkg/node/seals"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// subsystem begins the name of every metric.
const subsystem = "kubecri"

// measures are what /metrics shows. The names are public, and docs/operations.md lists them.
type measures struct {
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
	missing    *metrics.CounterVec

	replacements *metrics.CounterVec
	omitted      *metrics.GaugeVec
	conflicts    *metrics.GaugeVec
}

// newMeasures registers the counters and the metrics of the process.
func newMeasures() *measures {
	m := &measures{
		registry: metrics.NewKubeRegistry(),
		methods:  criMethods(),
		calls: counter("cri_calls_total", "Calls to the container runtime, by method and status code.",
			"method", "code"),
		callTime: seconds(0.0005, "cri_call_duration_seconds",
			"How long calls to the container runtime took, with the runtime's own time, by method.", "method"),
		addedTime: seconds(0.00005, "cri_call_added_seconds",
			"How much of the time of calls was not spent waiting for the container runtime, by method.", "method"),
		containers: counter("containers_total",
			"Containers that were created or refused, by outcome: passed, injected, isolated or refused.", "outcome"),
		plugins: counter("plugin_calls_total",
			"Calls into device plugins, by plugin, call and outcome: ok or error.", "plugin", "call", "outcome"),
		pluginTime: seconds(0.0005, "plugin_call_duration_seconds",
			"How long calls into device plugins took, by plugin and call.", "plugin", "call"),
		patches: counter("node_patches_total",
			"Patches of the node's devices in the API server, by outcome: ok or error.", "outcome"),
		findings: counter("grant_annotations_ignored_total",
			"Containers in the container runtime whose annotation KubeDevice/Grant does not count, by reason: "+
				"unsigned, forged, unreadable, conflicting or missing.", "reason"),
		seals: counter("seals_total",
			"Seals that were verified before a pod was granted devices, by result: valid, no_keys, or why it is not.",
			"result"),
		attempts: counter("device_firewall_attempts_total",
			"What containers asked for past the scheduler, by vendor, way (env, annotation, mount, cdi or restore) "+
				"and action: neutralised, refused or allowed.", "vendor", "way", "action"),
		evictions: counter("device_evictions_total",
			"Tries to evict pods whose devices had failed or were tainted, by outcome: evicted, blocked (by a budget) "+
				"or error.",
			"outcome"),
		missing: counter("containers_without_devices_total",
			"Containers that were allocated devices of a vendor whose container runtime did not start them, so that "+
				"no program added the devices, by vendor and runtime handler (empty for the default one).",
			"vendor", "handler"),
		omitted: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Subsystem: subsystem, Name: "devices_unpublished", StabilityLevel: metrics.ALPHA,
			Help: "1 for each device plugin whose devices are left out of what the node publishes, so that those of " +
				"the others are not, by plugin.",
		}, []string{"plugin"}),
		conflicts: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Subsystem: subsystem, Name: "resource_conflicts", StabilityLevel: metrics.ALPHA,
			Help: "1 for each resource of a plugin file that the file does not offer, because the kubelet or another " +
				"plugin has it, by resource.",
		}, []string{"resource"}),
		replacements: counter("device_replacements_total",
			"Allocations by which the scheduler gave other devices to containers that run, by outcome: taken, or "+
				"refused by this node.", "outcome"),
	}
	m.registry.MustRegister(m.calls, m.callTime, m.addedTime, m.containers, m.plugins, m.pluginTime, m.patches,
		m.findings, m.seals, m.attempts, m.evictions, m.missing, m.replacements, m.omitted, m.conflicts)
	for _, outcome := range []string{replacementTaken, replacementRefused} {
		m.replacements.WithLabelValues(outcome)
	}
	for _, outcome := range devicehealth.Outcomes() {
		m.evictions.WithLabelValues(string(outcome))
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
func (m *measures) gauge(name, help string, value func() float64) {
	m.registry.RawMustRegister(metrics.NewGaugeFunc(
		&metrics.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, value))
}

// showGrants registers what there is to say of the record.
func (m *measures) showGrants(record *grants.Checkpoint) {
	m.gauge("grants", "Pods that hold devices of this node.", func() float64 { return float64(len(record.List())) })
	m.gauge("grants_damaged",
		"1 if the checkpoint of granted devices was corrupt when kubecri started, and was made again from the runtime.",
		func() float64 { return oneIf(record.WasCorrupt()) })
	m.gauge("grants_unsaved",
		"1 while the checkpoint of granted devices cannot be written, as when the disk is full: no pod is granted a "+
			"device then.",
		func() float64 { return oneIf(record.IsUnsaved()) })
}

// showRegistration registers what there is to say of NRI.
func (m *measures) showRegistration(registration *nri.Registration) {
	m.gauge("nri_registered", "1 while the container runtime has registered kubecri as an NRI plugin.",
		func() float64 { return oneIf(registration.Registered()) })
}

// showNode registers what there is to say of the node's object in the API server.
func (m *measures) showNode(advertiser *advertise.Advertiser) {
	m.gauge("node_published",
		"1 while the node's object in the API server is known to show the node's devices as they are.",
		func() float64 { return oneIf(advertiser.Check() == nil) })
	m.gauge("node_published_timestamp_seconds",
		"When the node's object was last found or made to show the devices as they are, in seconds since 1970; 0 for "+
			"never.",
		func() float64 {
			if published := advertiser.Published(); !published.IsZero() {
				return float64(published.Unix())
			}
			return 0
		})
}

// ShowOmitted shows the sources whose devices are not published.
func (m *measures) ShowOmitted(labels []string) {
	m.omitted.Reset()
	for _, label := range labels {
		m.omitted.WithLabelValues(label).Set(1)
	}
}

// ShowConflicts shows the resources that plugin files do not offer.
func (m *measures) ShowConflicts(names []types.ResourceName) {
	m.conflicts.Reset()
	for _, name := range names {
		m.conflicts.WithLabelValues(string(name)).Set(1)
	}
}

// showSeals registers what there is to say of keys, and of pods without a valid seal.
func (m *measures) showSeals(keys *seals.Keys, holders *holders.Controller, agreement *seals.Agreement) {
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
	m.gauge("seal_mode_conflict", "Whether the node demands more seals than the scheduler makes; /readyz says why.",
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

func (m *measures) handler() http.Handler {
	return metrics.HandlerFor(m.registry, metrics.HandlerOpts{})
}

func (m *measures) ObserveContainer(outcome admission.Outcome) {
	m.containers.WithLabelValues(string(outcome)).Inc()
}

func (m *measures) ObserveFirewall(attempt firewall.Attempt, action admission.FirewallAction) {
	m.attempts.WithLabelValues(attempt.Vendor, string(attempt.Way), string(action)).Inc()
}

func (m *measures) ObserveEviction(outcome devicehealth.Outcome) {
	m.evictions.WithLabelValues(string(outcome)).Inc()
}

// The outcomes of replacements.
const replacementTaken, replacementRefused = "taken", "refused"

func (m *measures) ObserveReplacement(taken bool) {
	outcome := replacementRefused
	if taken {
		outcome = replacementTaken
	}
	m.replacements.WithLabelValues(outcome).Inc()
}

func (m *measures) ObservePlugin(plugin, call string, took time.Duration, err error) {
	m.plugins.WithLabelValues(plugin, call, outcomeOf(err)).Inc()
	m.pluginTime.WithLabelValues(plugin, call).Observe(took.Seconds())
}

func (m *measures) ObserveSeal(result string) { m.seals.WithLabelValues(result).Inc() }

func (m *measures) ObservePatch(err error) {
	m.patches.WithLabelValues(outcomeOf(err)).Inc()
}

func outcomeOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// ObserveCall counts a call to the runtime.
func (m *measures) ObserveCall(call criproxy.Call) {
	method := call.Method
	if _, known := m.methods[method]; !known {
		method = other
	}
	code := call.Code.String()
	if call.Code > codes.Unauthenticated {
		code = other
	}
	m.calls.WithLabelValues(method, code).Inc()
	m.callTime.WithLabelValues(method).Observe(call.Took.Seconds())
	m.addedTime.WithLabelValues(method).Observe((call.Took - call.Waited).Seconds())
}

// other is the label of all methods and codes that this release does not know, so that their number
// has a limit.
const other = "other"
