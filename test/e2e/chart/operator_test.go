// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// monitored are the kinds of objects of Prometheus' operator that the chart has.
var monitored = []string{"podmonitors", "scrapeconfigs", "prometheusrules"}

// installOperatorCRDs gives the cluster the definitions of these kinds, from the operator's own
// module. They stay, and the operator itself does not run.
func installOperatorCRDs(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	const operator = "github.com/prometheus-operator/prometheus-operator"
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", operator)
	download.Dir = filepath.Join(root, "test", "third_party", "prometheus-operator")
	printed, err := download.Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", operator, err, printed)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(printed, &module); err != nil {
		t.Fatal(err)
	}
	var definitions []string
	for _, kind := range monitored {
		name := "monitoring.coreos.com_" + kind + ".yaml"
		definitions = append(definitions, filepath.Join(module.Dir, "example", "prometheus-operator-crd", name))
	}
	if err := shared.Apply(ctx, definitions...); err != nil {
		t.Fatal(err)
	}
	for _, kind := range monitored {
		clustertest.Await(ctx, t, "the API server to serve "+kind, func() bool {
			_, err := shared.Kubectl(ctx, "get", kind)
			return err == nil
		})
	}
}

// monitoring are values with which the operator's Prometheus would scrape nodes and scheduler.
var monitoring = []string{"--set=monitoring.enabled=true", "--set=node.metricsBindAddress=0.0.0.0:10261"}

// checkMonitoringManifests makes sure that the operator's definitions know each field of what the
// chart and deploy/monitoring have. The API server drops others in silence.
func (s *story) checkMonitoringManifests() {
	s.Helper()
	rendered, err := s.helmCommand(append([]string{
		"template", "kubedevice", filepath.Join(root, "deploy", "chart"), "--show-only=templates/monitoring.yaml",
	}, monitoring...)...).Output()
	s.must(err)
	file := filepath.Join(dir, "monitoring.yaml")
	s.must(os.WriteFile(file, rendered, 0o644))
	for _, manifests := range []string{file, filepath.Join(root, "deploy", "monitoring")} {
		if _, err := shared.Kubectl(s.ctx, "apply", "--dry-run=server", "--validate=strict",
			"--filename="+manifests); err != nil {
			s.Errorf("%s: %v", manifests, err)
		}
	}
}

// checkMonitored makes sure that the release has, or has not, an object of each kind.
func (s *story) checkMonitored(want bool) {
	s.Helper()
	for _, kind := range monitored {
		found := s.kubectl("get", kind, "--namespace="+system, "--output=name")
		if has := strings.TrimSpace(found) != ""; has != want {
			s.Errorf("%s of the release: %q, want some: %t", kind, found, want)
		}
	}
}
