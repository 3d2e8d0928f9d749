// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/bench/scheduler/report"
)

// withTenants returns rounds of 10 seconds in which so many pods are bound with the worst pods,
// where 1,000 are with ordinary ones and 2,000 alone.
func withTenants(pods ...int) *report.Tenants {
	result := &report.Tenants{Nodes: 500, Tenants: 10, Rate: 1, Seconds: 10}
	for _, count := range pods {
		result.Rounds = append(result.Rounds, map[report.Crowd]report.Period{
			report.NoTenants: {Sample: report.Sample{Pods: 2000, Seconds: 10, CPUSeconds: 4}},
			report.Ordinary:  {Sample: report.Sample{Pods: 1000, Seconds: 10, CPUSeconds: 4}, Refusals: 70},
			report.Hostile:   {Sample: report.Sample{Pods: count, Seconds: 10, CPUSeconds: 4}, Refusals: 90},
		})
	}
	return result
}

func TestTheWorstPodsAreComparedWithOrdinaryOnes(t *testing.T) {
	result := withTenants(900, 960, 980)
	if err := result.Missed(); err != nil {
		t.Errorf("the median is 0.96: %v", err)
	}
	var text strings.Builder
	if err := result.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"the worst pods / pods without devices that fit nowhere: 0.960 of the throughput (0.900 to 0.980), " +
			"1.042 of the CPU (1.020 to 1.111)",
		"the worst pods / no tenants: 0.480 of the throughput (0.450 to 0.490)",
		"the worst pods                         96      4.17                               9\n",
		"10 tenants create 1 pods a second each",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	if err := withTenants(900, 940, 980).Missed(); err == nil || !strings.Contains(err.Error(), "0.940") {
		t.Errorf("the median is 0.94: %v", err)
	}
}
