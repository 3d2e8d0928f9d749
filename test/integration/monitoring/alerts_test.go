// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests what deploy/monitoring has, with Prometheus' own tool.
package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/checkout"
)

// rule is an alert as the Prometheus operator has it.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alerts returns the alerts, and the same as a file of rules for Prometheus itself.
func alerts(t *testing.T) (all []rule, file []byte) {
	t.Helper()
	text := read(t, "deploy/monitoring/kubedevice-alerts.yaml")
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	file, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(text, new(map[string]any)); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(file, &spec); err != nil {
		t.Fatal(err)
	}
	for _, group := range spec.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("only %d alerts are found", len(all))
	}
	return all, file
}

// path returns the absolute path of a file of the checkout.
func path(t *testing.T, name string) string {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, filepath.FromSlash(name))
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEachAlertFiresAndClears(t *testing.T) {
	promtool := path(t, "_output/tools/promtool")
	build := exec.Command("go", "build", "-tags", "remove_all_sd", "-o", promtool,
		"github.com/prometheus/prometheus/cmd/promtool")
	build.Dir = path(t, "hack/prometheus")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build promtool: %v\n%s", err, said)
	}
	all, file := alerts(t)
	tests := read(t, "test/integration/monitoring/alerts.test.yaml")
	for _, alert := range all {
		if !strings.Contains(string(tests), `alertname="`+alert.Alert+`",alertstate="firing"`) {
			t.Errorf("no test of alerts.test.yaml has %s fire", alert.Alert)
		}
	}
	directory := t.TempDir()
	for name, text := range map[string][]byte{"rules.yaml": file, "test.yaml": tests, "boards.yaml": boardRules(t)} {
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}, {"test", "rules", "test.yaml"},
		{"check", "rules", "boards.yaml"},
	} {
		run := exec.Command(promtool, args...)
		run.Dir = directory
		if said, err := run.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
}

func TestEachAlertHasAPageThatSaysWhatToDo(t *testing.T) {
	const pages = "docs/runbooks"
	all, _ := alerts(t)
	known := map[string]bool{}
	for _, alert := range all {
		known[alert.Alert+".md"] = true
		page := pages + "/" + alert.Alert + ".md"
		if url := alert.Annotations["runbook_url"]; !strings.HasSuffix(url, "/"+page) {
			t.Errorf("%s: runbook_url is %q, want .../%s", alert.Alert, url, page)
		}
		text, err := os.ReadFile(path(t, page))
		if err != nil {
			t.Errorf("%s: %v", alert.Alert, err)
		}
		for _, part := range []string{"# " + alert.Alert, "\n## What it means for pods", "\n## Find the cause",
			"\n## Fix it"} {
			if !strings.Contains(string(text), part+"\n") {
				t.Errorf("%s lacks %q", page, part)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, alert.Labels["severity"]) ||
			alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
			t.Errorf("%s lacks severity, summary or description", alert.Alert)
		}
	}
	entries, err := os.ReadDir(path(t, pages))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !known[entry.Name()] {
			t.Errorf("%s/%s is the page of no alert", pages, entry.Name())
		}
	}
}

// metric is the name of one of ours, and histogramSeries what Prometheus adds to a histogram's.
var (
	metric          = regexp.MustCompile(`\b(?:kubecri|kubedevice_scheduler)_[a-z_]+\b`)
	histogramSeries = regexp.MustCompile(`_(?:bucket|count|sum)$`)
)

// documentedMetrics returns the metrics in the tables of docs/reference/metrics.md, which are
// compared with what each program exposes.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	documented := map[string]bool{}
	table := regexp.MustCompile("(?m)^\\| `((?:kubecri|kubedevice_scheduler)_[a-z_]+)` \\|")
	for _, match := range table.FindAllStringSubmatch(string(read(t, "docs/reference/metrics.md")), -1) {
		documented[match[1]] = true
	}
	return documented
}

func TestAlertsUseMetricsThatExist(t *testing.T) {
	documented := documentedMetrics(t)
	all, _ := alerts(t)
	for _, alert := range all {
		names := metric.FindAllString(alert.Expr, -1)
		if len(names) == 0 && !strings.HasPrefix(alert.Expr, "up{") {
			t.Errorf("%s uses no metric of ours: %s", alert.Alert, alert.Expr)
		}
		for _, name := range names {
			if !documented[name] {
				t.Errorf("%s uses %s, which nothing exposes", alert.Alert, name)
			}
		}
	}
}
