// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// One scheduler answers, and another one has published another key.
func TestSchedulersAreIdentifiedByTheirAPI(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == schedulerapi.ServerPath {
			_ = json.NewEncoder(w).Encode(schedulerapi.Server{ // it is read
				Instance: schedulerapi.Instance{Name: "a", Leads: true}, Version: "v2",
			})
			return
		}
		fmt.Fprintf(w, "%s with %s\n", r.URL, r.Header.Get("Authorization"))
	}))
	defer server.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	address := schedulerapi.Address{
		Host: host, BindAddress: "127.0.0.1", Port: server.Listener.Addr().(*net.TCPAddr).Port, Version: "v1",
		PublicKey: schedulerapi.Fingerprint(server.Certificate()),
	}
	other := address
	other.PublicKey = "sha256:00"
	f := newFixture(publishing(t, "a", now, address), publishing(t, "b", now, other))

	stdout, stderr, status := f.run(t.Context(), "schedulers --no-headers")
	first, second, _ := strings.Cut(stdout, "\n")
	if status != 0 || !strings.HasPrefix(first, "a   yes   v2 ") || !strings.HasSuffix(first, " yes") ||
		!strings.HasPrefix(second, "b   no    v1 ") || !strings.Contains(second, "no credentials were sent") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = f.run(t.Context(), "schedulers --raw nodes?limit=1")
	if status != 0 || stdout != "/devices/v1alpha1/nodes?limit=1 with Bearer secret\n" {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = f.run(t.Context(), "schedulers --no-headers --scheduler="+server.URL)
	if status != 0 || !strings.HasPrefix(stdout, "a   yes   v2 ") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
}

func TestWithoutASchedulerTheErrorHasTheNextStep(t *testing.T) {
	for _, line := range []string{"schedulers", "schedulers --raw nodes"} {
		stdout, stderr, status := newFixture().run(t.Context(), line)
		if status != 1 || stdout != "" || !strings.Contains(stderr, "is deploy/rbac applied?") {
			t.Errorf("%s: exit status %d: %s%s", line, status, stdout, stderr)
		}
	}
}
