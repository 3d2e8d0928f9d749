// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"

	"k8s.io/component-base/metrics/testutil"
)

// The paths of a scheduler's server that anybody may read here.
const (
	metricsPath = "/metrics"
	profilePath = "/debug/pprof/profile"
	readyPath   = "/readyz"
)

// get reads from a scheduler's server.
func (p *process) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.address+path, nil)
	if err != nil {
		return "", err
	}
	// It has made its certificate itself.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}

// readings are a scheduler's metrics at one time.
type readings testutil.Metrics

func (p *process) metrics(ctx context.Context) (readings, error) {
	text, err := p.get(ctx, metricsPath)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's metrics: %w", err)
	}
	metrics := testutil.NewMetrics()
	if err := testutil.ParseMetrics(text, &metrics); err != nil {
		return nil, fmt.Errorf("read the scheduler's metrics: %w", err)
	}
	return readings(metrics), nil
}

// value returns a metric without labels, 0 if there is none.
func (r readings) value(name string) float64 { return r.sumBy("", name)[""] }

// sumBy returns the sum of a metric by a label's value.
func (r readings) sumBy(label testutil.LabelName, name string) map[string]float64 {
	sums := map[string]float64{}
	for _, sample := range r[name] {
		sums[string(sample.Metric[label])] += float64(sample.Value)
	}
	return sums
}

const point = "extension_point"

// points returns how long extension points took per scheduled pod since before, in milliseconds.
func (r readings) points(before readings) map[string]float64 {
	const name = "scheduler_framework_extension_point_duration_seconds_sum"
	spent, spentBefore := r.sumBy(point, name), before.sumBy(point, name)
	pods := r.scheduled() - before.scheduled()
	took := map[string]float64{}
	for at := range spent {
		took[at] = 1000 * (spent[at] - spentBefore[at]) / pods
	}
	return took
}

// scheduled returns how many pods were scheduled: every one passes Reserve once.
func (r readings) scheduled() float64 {
	return r.sumBy(point, "scheduler_framework_extension_point_duration_seconds_count")["Reserve"]
}

// refusals returns how often a pod was tried and fit nowhere.
func (r readings) refusals() float64 {
	return r.sumBy("result", "scheduler_schedule_attempts_total")["unschedulable"]
}

// calls returns how often a device scheduler was called.
func (r readings) calls(plugin string) float64 {
	return r.sumBy("plugin", "kubedevice_scheduler_plugin_calls_total")[plugin]
}
