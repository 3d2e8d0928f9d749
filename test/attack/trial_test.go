// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/kube"
)

// newStage returns a stage whose API server answers by the last element of the path.
func newStage(t *testing.T, cleaned *int) *Stage {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := metav1.Status{Status: metav1.StatusSuccess}
		status.Kind, status.APIVersion = "Status", "v1"
		code := http.StatusOK
		switch r.URL.Path {
		case "/api/denied":
			code, status.Status = http.StatusForbidden, metav1.StatusFailure
			status.Reason, status.Message = metav1.StatusReasonForbidden, "a policy denies it"
		case "/api/missing":
			code, status.Status, status.Reason = http.StatusNotFound, metav1.StatusFailure, metav1.StatusReasonNotFound
		case "/api/clean":
			*cleaned++
		}
		status.Code = int32(code)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	admin, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &Stage{
		admin: admin, cluster: &cluster.Cluster{}, attempt: &Attempt{ID: "one", Who: "user one of many"},
		namespace: "attack-one", namespaced: true,
	}
}

func TestTheAPIServersRefusalOfAnAttackersStepEndsTheAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   Got
		err    string
	}{
		"of a step": {
			script: `steps: [request: GET /api/denied, may request: GET /api/any]`,
			want:   Got{RefusedByAPIServer, "a policy denies it"},
		},
		"of none":                   {script: `steps: [may request: GET /api/any]`, want: Got{Succeeds, "permits"}},
		"of none for a missing one": {script: `steps: [may request: GET /api/missing]`, want: Got{Succeeds, "permits"}},
		"but not of a preparation": {
			script: `{prepare: [request: GET /api/denied], steps: [request: GET /api/any]}`, err: "denies",
		},
		"but not of a missing one":   {script: `steps: [request: GET /api/missing]`, err: "request"},
		"but not of administrator's": {script: `steps: [{as: administrator, request: GET /api/denied}]`, err: "denies"},
	} {
		t.Run(name, func(t *testing.T) {
			var script script
			if err := yaml.UnmarshalStrict([]byte(test.script), &script); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(`[request: GET /api/clean]`), &script.Finally); err != nil {
				t.Fatal(err)
			}
			cleaned := 0
			got, err := script.play(t.Context(), newStage(t, &cleaned))
			if got.Outcome != test.want.Outcome || !strings.Contains(got.Words, test.want.Words) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if cleaned != 1 {
				t.Errorf("the last steps were made %d times, want once", cleaned)
			}
		})
	}
}
