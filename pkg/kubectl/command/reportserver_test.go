// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/pkg/kubectl/bundle"
)

// An API server that shows its version and the pods of kube-system, and nothing else but logs.
func answerForReport(logs http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/version":
			fmt.Fprint(w, `{"gitVersion": "v1.37.1"}`)
		case "/api/v1/namespaces/kube-system/pods":
			fmt.Fprint(w, `{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "s", "namespace":
				"kube-system"}, "spec": {"containers": [{"name": "kube-scheduler", "args": ["hidden"]}]}}]}`)
		case "/api/v1/namespaces/kube-system/pods/s/log":
			w.Header().Set("Content-Type", "text/plain")
			logs(w, r)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
				"message": "no", "code": 403}`)
		}
	}
}

// reportFrom writes a report about what an API server shows, with the clients that users have.
func reportFrom(ctx context.Context, server *httptest.Server, file string) (stderr string, status int) {
	config := &rest.Config{Host: server.URL}
	var out, errOut strings.Builder
	env := &environment{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}}
	env.now = func() time.Time { return now }
	env.clients = func() (bundle.Clients, error) { return newClients(config) }
	env.client = func() (corev1client.CoreV1Interface, string, error) {
		client, err := corev1client.NewForConfig(config)
		return client, "default", err
	}
	command := newCommand(env)
	command.SetArgs([]string{"report", "-o", file})
	status = run(ctx, command, env)
	return errOut.String(), status
}

func TestAReportIsReadFromAnAPIServer(t *testing.T) {
	var query string
	server := httptest.NewServer(answerForReport(func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		fmt.Fprint(w, schedulerLog)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	if stderr, status := reportFrom(t.Context(), server, file); status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	files := unpack(t, file)
	files.has(t, "logs/s.kube-scheduler.log", schedulerLog)
	files.has(t, "versions.yaml", "apiServer: v1.37.1\n", "- v1.37.1+kubedevice-1\n")
	files.has(t, "index.txt", "nodes.yaml: ", "pods.yaml: ", "events.yaml: ", "leases.yaml: ", "metrics/s.txt: ",
		"mutatingadmissionpolicies: ")
	for name := range files {
		files.lacks(t, name, "hidden")
	}
	const want = "container=kube-scheduler&limitBytes=4194305&sinceSeconds=3600&tailLines=50000"
	if query != want {
		t.Errorf("asks for a log with %s, want %s", query, want)
	}
}

func TestAReportThatIsInterruptedDoesNotWaitForTheAPIServer(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(answerForReport(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, schedulerLog)
		w.(http.Flusher).Flush()
		cancel() // with a log that never ends
		<-r.Context().Done()
	}))
	directory := t.TempDir()
	stderr, status := reportFrom(ctx, server, filepath.Join(directory, "report.tar.gz"))
	if status != 1 || stderr != "" {
		t.Errorf("exit status %d, and %q", status, stderr)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	server.CloseClientConnections()
	server.Close()
	goleak.VerifyNone(t, ignored)
}
