// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write deploy/monitoring/boards instead of comparing with it")

const boardsDirectory = "deploy/monitoring/boards"

// boards are Grafana's boards. The devices' board is for users of devices, the others for
// administrators.
var boards = []board{
	{
		file: "kubedevice-devices", title: "KubeDevice / Devices",
		filters: []filter{{"resource", "kubecri_device_capacity"}},
		rows: []row{
			{"Now", []panel{
				{title: "Devices in use", kind: stat, unit: "percentunit", queries: []query{{inUse, ""}}},
				{title: "Free devices", kind: stat, queries: []query{{
					`sum(kubecri_device_allocatable{resource=~"$resource"}) - ` + held, "",
				}}},
				{title: "Unhealthy devices", kind: stat, bad: 1, queries: []query{{
					`sum(kubecri_device_capacity{resource=~"$resource"}) - ` +
						`sum(kubecri_device_allocatable{resource=~"$resource"})`, "",
				}}},
				{title: "Pods bound without their devices", kind: stat, bad: 1, queries: []query{{
					`max(kubedevice_scheduler_unallocated_pods)`, "",
				}}},
			}},
			{"Use", []panel{
				{title: "Devices by kind", kind: series, queries: []query{
					{`sum by (resource) (kubecri_device_allocatable{resource=~"$resource"})`, "{{resource}}, healthy"},
					{heldBy("resource"), "{{resource}}, held"},
				}},
				{title: "Devices held by namespace", kind: series, stacked: true, queries: []query{
					{heldBy("namespace"), "{{namespace}}"},
				}},
				{title: "Share in use by node", kind: series, unit: "percentunit", queries: []query{{
					heldBy("instance") + ` / sum by (instance) (kubecri_device_allocatable{resource=~"$resource"})`,
					"{{instance}}",
				}}},
			}},
			{"Which", []panel{
				{title: "Health", kind: timeline, queries: []query{{
					`kubecri_device_healthy{resource=~"$resource"}`, "{{instance}} {{device}}",
				}}},
				{title: "Who holds which device", kind: table, queries: []query{{
					`max by (instance, resource, device, namespace, pod, container) ` +
						`(kubecri_device_held{resource=~"$resource"})`, "",
				}}},
				{title: "Unhealthy devices", kind: table, queries: []query{{
					`max by (instance, resource, device) (kubecri_device_healthy{resource=~"$resource"} == 0)`, "",
				}}},
			}},
			{"Memory that programs really use", []panel{
				{title: "Part of each device's memory", kind: series, unit: "percentunit", queries: []query{{
					`kubecri_device_memory_used_bytes{resource=~"$resource"} / ` +
						`kubecri_device_memory_total_bytes{resource=~"$resource"}`, "{{instance}} {{device}}",
				}}},
				{title: "By namespace", kind: series, unit: "bytes", stacked: true, queries: []query{{
					`sum by (namespace) (kubecri_device_container_memory_used_bytes{resource=~"$resource"})`,
					"{{namespace}}",
				}, {
					`sum(kubecri_device_memory_unowned_bytes{resource=~"$resource"})`, "no container",
				}}},
				{title: "Containers that use more than their share", kind: table, queries: []query{{
					`kubecri_device_container_memory_used_bytes{resource=~"$resource"} - ` +
						`kubecri_device_container_memory_share_bytes{resource=~"$resource"} > 0`, "",
				}}},
			}},
		},
	},
	{
		file: "kubedevice-nodes", title: "KubeDevice / Nodes",
		filters: []filter{{"instance", "kubecri_grants"}},
		rows: []row{
			{"Now", []panel{
				{title: "Nodes that answer", kind: stat, queries: []query{{
					`count(kubecri_grants{instance=~"$instance"})`, "",
				}}},
				{title: "Nodes whose devices are not published as they are", kind: stat, bad: 1, queries: []query{{
					`count(kubecri_node_published{instance=~"$instance"} == 0) or vector(0)`, "",
				}}},
				{title: "Nodes that cannot save grants", kind: stat, bad: 1, queries: []query{{
					`sum(kubecri_grants_unsaved{instance=~"$instance"}) or vector(0)`, "",
				}}},
				{title: "Pods with devices and no valid seal", kind: stat, bad: 1, queries: []query{{
					`sum(kubecri_unsealed_holders{instance=~"$instance"}) or vector(0)`, "",
				}}},
			}},
			{"Containers", []panel{
				{title: "Containers", kind: series, unit: "ops", queries: []query{
					{rate("kubecri_containers_total", "outcome", "instance"), "{{outcome}}"},
				}},
				{title: "Added by kubecri to a call, 99th percentile", kind: series, unit: "s", queries: []query{
					{quantile("kubecri_cri_call_added_seconds", "method", "instance"), "{{method}}"},
				}},
				{title: "Calls that failed", kind: series, unit: "ops", queries: []query{{
					`sum by (method, code) ` +
						`(rate(kubecri_cri_calls_total{instance=~"$instance",code!="OK"}[$__rate_interval]))`,
					"{{method}} {{code}}",
				}}},
			}},
			{"Plugins", []panel{
				{title: "Calls into device plugins", kind: series, unit: "ops", queries: []query{
					{rate("kubecri_plugin_calls_total", "plugin, outcome", "instance"), "{{plugin}} {{outcome}}"},
				}},
				{title: "How long they take, 99th percentile", kind: series, unit: "s", queries: []query{
					{
						quantile("kubecri_plugin_call_duration_seconds", "plugin, call", "instance"),
						"{{plugin}} {{call}}",
					},
				}},
			}},
			{"Safety", []panel{
				{title: "Device firewall", kind: series, unit: "ops", queries: []query{
					{
						rate("kubecri_device_firewall_attempts_total", "way, action", "instance"),
						"{{way}} {{action}}",
					},
				}},
				{title: "Seals", kind: series, unit: "ops", queries: []query{
					{rate("kubecri_seals_total", "result", "instance"), "{{result}}"},
				}},
				{title: "Containers whose signed part does not count", kind: series, unit: "ops", queries: []query{
					{rate("kubecri_grant_annotations_ignored_total", "reason", "instance"), "{{reason}}"},
				}},
			}},
		},
	},
	{
		file: "kubedevice-scheduler", title: "KubeDevice / Scheduler",
		filters: []filter{{"instance", "kubedevice_scheduler_verdict_cache_size"}},
		rows: []row{
			{"Now", []panel{
				{title: "Plugins that are called for no pod", kind: stat, bad: 1, queries: []query{{
					`sum(kubedevice_scheduler_plugin_quarantined{instance=~"$instance"}) or vector(0)`, "",
				}}},
				{title: "Calls into plugins that do not return", kind: stat, bad: 1, queries: []query{{
					`sum(kubedevice_scheduler_plugin_calls_overdue{instance=~"$instance"}) or vector(0)`, "",
				}}},
				{title: "Admission policies that are missing", kind: stat, bad: 1, queries: []query{{
					`max(kubedevice_scheduler_admission_policies_missing{instance=~"$instance"})`, "",
				}}},
				{title: "Bound pods without a valid seal", kind: stat, bad: 1, queries: []query{{
					`sum(max by (reason) (kubedevice_scheduler_unsealed_pods{instance=~"$instance"})) or vector(0)`, "",
				}}},
			}},
			{"Plugins", []panel{
				{title: "Calls", kind: series, unit: "ops", queries: []query{
					{
						rate("kubedevice_scheduler_plugin_calls_total", "plugin, outcome", "instance"),
						"{{plugin}} {{outcome}}",
					},
				}},
				{title: "How long they take, 99th percentile", kind: series, unit: "s", queries: []query{{
					quantile("kubedevice_scheduler_plugin_call_duration_seconds", "plugin, method", "instance"),
					"{{plugin}} {{method}}",
				}}},
				{title: "Failures", kind: series, unit: "ops", queries: []query{
					{
						rate("kubedevice_scheduler_plugin_failures_total", "plugin, blamed", "instance"),
						"{{plugin}}, {{blamed}}",
					},
				}},
			}},
			{"Search", []panel{
				{title: "Nodes not searched, and answers cut short", kind: series, unit: "ops", queries: []query{
					{
						rate("kubedevice_scheduler_nodes_not_searched_total", "instance", "instance"),
						"not searched, {{instance}}",
					},
					{
						rate("kubedevice_scheduler_step_limit_hits_total", "instance", "instance"),
						"cut short, {{instance}}",
					},
				}},
				{title: "Verdicts that were known", kind: series, unit: "percentunit", queries: []query{{
					hits("kubedevice_scheduler_verdict_cache", "instance"), "{{instance}}",
				}}},
				{title: "Hits of the other caches", kind: series, unit: "percentunit", queries: []query{{
					hits("kubedevice_scheduler_cache", "cache"), "{{cache}}",
				}}},
				{title: "Why verdicts leave the cache", kind: series, unit: "ops", queries: []query{
					{
						rate("kubedevice_scheduler_verdict_cache_invalidations_total", "reason", "instance"),
						"{{reason}}",
					},
				}},
			}},
		},
	},
}

// held is how many devices containers hold: one that several share counts once.
const (
	held  = `(count(max by (instance, resource, device) (kubecri_device_held{resource=~"$resource"})) or vector(0))`
	inUse = held + ` / sum(kubecri_device_allocatable{resource=~"$resource"})`
)

// heldBy is how many devices containers hold, by a label. Where it is one of the holder's, a device
// that several share counts for each of them.
func heldBy(label string) string {
	return fmt.Sprintf(`count by (%s) (max by (instance, resource, device, %[1]s) `+
		`(kubecri_device_held{resource=~"$resource"}))`, label)
}

func rate(counter, by, filter string) string {
	return fmt.Sprintf(`sum by (%s) (rate(%s{%s=~"$%[3]s"}[$__rate_interval]))`, by, counter, filter)
}

func quantile(histogram, by, filter string) string {
	return fmt.Sprintf(`histogram_quantile(0.99, sum by (%s, le) (rate(%s_bucket{%s=~"$%[3]s"}[$__rate_interval])))`,
		by, histogram, filter)
}

func hits(cache, by string) string {
	rates := func(what string) string { return rate(cache+"_"+what+"_total", by, "instance") }
	return fmt.Sprintf("%s / (%[1]s + %s)", rates("hits"), rates("misses"))
}

func TestTheBoardsAreThoseThatAreGenerated(t *testing.T) {
	entries, err := os.ReadDir(path(t, boardsDirectory))
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, board := range boards {
		known[board.file+".json"] = true
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(board.encode()); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(boardsDirectory, board.file+".json")
		if *rewrite {
			if err := os.WriteFile(path(t, name), text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if !bytes.Equal(read(t, name), text.Bytes()) {
			t.Errorf("%s differs from what is generated: go test -run Boards ./integration/monitoring -rewrite", name)
		}
	}
	for _, entry := range entries {
		if !known[entry.Name()] {
			t.Errorf("%s/%s is generated by nothing", boardsDirectory, entry.Name())
		}
	}
}

// boardExpressions returns the expressions of the boards with something for Grafana's variables.
func boardExpressions() (all []string) {
	for _, board := range boards {
		for _, row := range board.rows {
			for _, panel := range row.panels {
				for _, query := range panel.queries {
					all = append(all, variables.Replace(query.expr))
				}
			}
		}
	}
	return all
}

func TestBoardsUseMetricsThatExist(t *testing.T) {
	documented := documentedMetrics(t)
	for _, expr := range boardExpressions() {
		used := metric.FindAllString(expr, -1)
		if len(used) == 0 {
			t.Errorf("no metric of ours is in %s", expr)
		}
		for _, name := range used {
			if !documented[name] && !documented[histogramSeries.ReplaceAllString(name, "")] {
				t.Errorf("%s uses %s, which nothing exposes", expr, name)
			}
		}
	}
}

// boardRules returns the boards' expressions as rules that promtool can check.
func boardRules(t *testing.T) []byte {
	t.Helper()
	rules := []map[string]string{}
	for i, expr := range boardExpressions() {
		rules = append(rules, map[string]string{"record": fmt.Sprintf("board:query:%d", i), "expr": expr})
	}
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "boards", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	return file
}
