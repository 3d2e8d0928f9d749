// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// monitored are the kinds of objects of Prometheus' operator that the chart has.
var monitored = []string{"podmonitors", "scrapeconfigs", "prometheusrules"}

// installOperatorCRDs gives the cluster the definitions of these kinds, from the operator's own
// module. They stay, and the operator itself does not run.
func installOperatorCRDs(t *testing.T) {
	t.Helper()
	const operator = "github.com/prometheus-operator/prometheus-operator"
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operator)
	download.Dir = filepath.Join(root, "test", "third_party", "prometheus-operator")
	printed, err := download.Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", operator, err, printed)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(printed, &module); err != nil {
		t.Fatal(err)
	}
	apply, wait := []string{"apply", "--server-side"}, []string{"wait", "--for=condition=Established"}
	for _, kind := range monitored {
		name := "monitoring.coreos.com_" + kind + ".yaml"
		apply = append(apply, "--filename="+filepath.Join(module.Dir, "example", "prometheus-operator-crd", name))
		wait = append(wait, "crd/"+kind+".monitoring.coreos.com")
	}
	for _, arguments := range [][]string{apply, wait} {
		if _, err := shared.Kubectl(t.Context(), arguments...); err != nil {
			t.Fatal(err)
		}
	}
}

// monitoring are values with which the operator's Prometheus would scrape nodes and scheduler.
var monitoring = []string{"--set=monitoring.enabled=true", "--set=node.metricsBindAddress=0.0.0.0:10261"}

// checkMonitoringManifests makes sure that the operator's definitions know each field of what the
// chart and deploy/monitoring have. The API server drops others in silence.
func (s *story) checkMonitoringManifests() {
	s.Helper()
	printed, err := s.tryHelm(append([]string{
		"template", "kubedevice", filepath.Join(root, "deploy", "chart"), "--show-only=templates/monitoring.yaml",
	}, monitoring...)...)
	if err != nil {
		s.Fatalf("%v\n%s", err, printed)
	}
	file := filepath.Join(dir, "monitoring.yaml")
	s.must(os.WriteFile(file, []byte(printed), 0o644))
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
