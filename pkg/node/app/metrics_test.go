// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// quietNode returns the parts of a node with one GPU, of which only the plugins run, and what says
// that the kubelet has none of their resources.
func quietNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	upstream, err := criproxy.Dial(filepath.Join(dir, "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	options := NewOptions()
	options.NRISocket = "" // of this machine
	options.NodeName, options.StateDir, options.Kubeconfig, options.loadPlugins = "node-1", dir,
		"kubelet.conf", loadOneGPU
	options.SealCertificates = filepath.Join(dir, "seal-certificates.pem") // with seals, whose metrics are then there
	ctx, cancel := context.WithCancel(context.Background())
	n := newNode(ctx, options, "", upstream)
	n.running.Go(func() { n.files.Run(ctx) })
	n.running.Go(func() { n.plugins.Run(ctx) })
	n.running.Go(func() { n.adoption.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		n.wait(ctx)
		upstream.Close()
	})
	select {
	case <-n.plugins.Synced():
	case <-time.After(20 * time.Second):
		t.Fatal("the plugin has not spoken after 20s")
	}
	return n
}

// exposed returns the labels of each of kubecri's own metrics, sorted, by the metric's name.
func exposed(t *testing.T, registry metrics.KubeRegistry) map[string][]string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), subsystem+"_") {
			continue
		}
		labels := []string{}
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		names[family.GetName()] = labels
	}
	return names
}

var (
	row    = regexp.MustCompile("(?m)^\\| `(" + subsystem + "_[a-z_]+)` \\|([^|]*)\\|")
	quoted = regexp.MustCompile("`([a-z_]+)`")
)

// documented returns the same from the table in the documentation.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		labels := []string{}
		for _, label := range quoted.FindAllStringSubmatch(match[2], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		names[match[1]] = labels
	}
	return names
}

func TestTheDocumentationListsEveryMetricWithItsLabels(t *testing.T) {
	n := quietNode(t)
	n.metrics.ObserveCall(criproxy.Call{Method: admission.CreateContainerMethod})
	n.metrics.ObserveContainer(admission.Passed)
	n.metrics.ObservePlugin("one-gpu", "Allocate", time.Second, nil)
	n.metrics.ObservePatch(nil)
	n.metrics.ShowOmitted([]string{"a.b/huge"})
	n.metrics.ShowConflicts([]types.ResourceName{"nvidia.com/gpu"})
	n.metrics.ObserveFirewall(firewall.Attempt{Vendor: "nvidia.com", Way: firewall.ByEnv},
		admission.AttemptNeutralised)
	missingReporter{n.metrics, n.events}.Missing(&corev1.ObjectReference{}, "nvidia.com", "", "a problem")
	n.metrics.showRegistration(nri.New(nri.Options{}))
	held := metrics.NewKubeRegistry()
	held.CustomMustRegister(newDeviceMetrics(fixedDevices(tainted()),
		fixedGrants{holderOf("1", "train", "GPU-0", false)}, fixedShares{}, 2))
	used := metrics.NewKubeRegistry()
	used.CustomMustRegister(newUsageMetrics(oneReading(), fixedDevices(twoGPUs()), 2))
	shown := exposed(t, n.metrics.registry)
	maps.Copy(shown, exposed(t, held))
	maps.Copy(shown, exposed(t, used))
	if diff := cmp.Diff(documented(t), shown); diff != "" {
		t.Errorf("docs/reference/metrics.md and /metrics differ (-documented +exposed):\n%s", diff)
	}
}

func TestNoCallerMakesMetricsWithoutEnd(t *testing.T) {
	m := newNodeMetrics()
	for i := range 1_000 {
		m.ObserveCall(criproxy.Call{Method: fmt.Sprintf("/runtime.v2.RuntimeService/Invented%d", i),
			Code: codes.Code(100 + i)})
	}
	m.ObserveCall(criproxy.Call{Method: admission.CreateContainerMethod, Code: codes.Unavailable, Took: 3 * time.Second,
		Waited: 2 * time.Second})
	m.ObserveCall(criproxy.Call{Method: "/runtime.v1.RuntimeService/GetContainerEvents", Code: codes.Canceled})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var series []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "kubecri_cri_calls_total" {
				series = append(series, fmt.Sprintf("%s %s %v", metric.GetLabel()[1].GetValue(),
					metric.GetLabel()[0].GetValue(), metric.GetCounter().GetValue()))
			}
			if family.GetName() == "kubecri_cri_call_added_seconds" &&
				metric.GetLabel()[0].GetValue() == admission.CreateContainerMethod {
				if got := metric.GetHistogram().GetSampleSum(); got != 1 {
					t.Errorf("a call of 3s that waited 2s added %vs", got)
				}
			}
		}
	}
	slices.Sort(series)
	if diff := cmp.Diff([]string{
		"/runtime.v1.RuntimeService/CreateContainer Unavailable 1",
		"/runtime.v1.RuntimeService/GetContainerEvents Canceled 1",
		"other other 1000",
	}, series); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMetricsSayWhatTheNodeHasAndWhetherItIsPublished(t *testing.T) {
	n := quietNode(t)
	n.metrics.ObservePatch(errors.New("away"))
	families, err := n.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{
		"kubecri_device_capacity": 1, "kubecri_device_allocatable": 1, "kubecri_grants": 0, "kubecri_grants_damaged": 0,
		"kubecri_node_published": 0, "kubecri_node_published_timestamp_seconds": 0,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v (there: %v), want %v", name, value, there, want)
		}
	}
}
