// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
)

// reviewer is an API server that knows two tokens, and lets one of their users read /metrics.
type reviewer struct {
	calls atomic.Int32
	away  atomic.Bool
}

func (r *reviewer) access() *Access {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews",
		func(action clienttesting.Action) (bool, apiruntime.Object, error) {
			r.calls.Add(1)
			if r.away.Load() {
				return true, nil, errors.New("the API server is away")
			}
			review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
			if user, ok := strings.CutPrefix(review.Spec.Token, "token-of-"); ok {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
					User: authenticationv1.UserInfo{Username: user, Groups: []string{"readers"}}}
			}
			return true, review, nil
		})
	client.PrependReactor("create", "subjectaccessreviews",
		func(action clienttesting.Action) (bool, apiruntime.Object, error) {
			review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
			asked := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && review.Spec.Groups[0] == "readers" &&
				*asked == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
			return true, review, nil
		})
	return NewAccess(connected{client})
}

func TestMetricsAreReadByThoseWhomTheAPIServerLets(t *testing.T) {
	api := &reviewer{}
	handler := api.access().Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "kubecri_grants 1")
	}))
	get := func(path, authorization string) int {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if shown := strings.Contains(answer.Body.String(), "kubecri_grants"); shown != (answer.Code == http.StatusOK) {
			t.Errorf("%s with %q: status %d, and metrics are shown: %v", path, authorization, answer.Code, shown)
		}
		return answer.Code
	}
	for _, test := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", http.StatusUnauthorized},
		{"/metrics", "Basic dG9rZW4tb2YtcHJvbWV0aGV1cw==", http.StatusUnauthorized},
		{"/metrics", "Bearer ", http.StatusUnauthorized},
		{"/metrics", "Bearer invented", http.StatusUnauthorized},
		{"/metrics", "Bearer token-of-tenant", http.StatusForbidden},
		{"/other", "Bearer token-of-prometheus", http.StatusForbidden},
		{"/metrics", "Bearer token-of-prometheus", http.StatusOK},
		{"/metrics", "bearer token-of-prometheus", http.StatusOK},
	} {
		if got := get(test.path, test.authorization); got != test.want {
			t.Errorf("%s with %q: status %d, want %d", test.path, test.authorization, got, test.want)
		}
	}
	before := api.calls.Load()
	get("/metrics", "Bearer token-of-prometheus")
	if api.calls.Load() != before {
		t.Error("the API server is queried at each scrape")
	}
	local := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	local.RemoteAddr = "127.0.0.1:40000"
	answer := httptest.NewRecorder()
	if handler.ServeHTTP(answer, local); answer.Code != http.StatusOK {
		t.Errorf("from this machine: status %d", answer.Code)
	}
	api.away.Store(true)
	if got := get("/metrics", "Bearer token-of-another"); got != http.StatusServiceUnavailable {
		t.Errorf("while the API server is away: status %d", got)
	}
	api.away.Store(false)
	if got := get("/metrics", "Bearer token-of-another"); got != http.StatusForbidden {
		t.Errorf("when the API server is back: status %d: no answer was taken for one", got)
	}
}

func TestTheCertificateIsReadAgainWhenItChanges(t *testing.T) {
	directory := t.TempDir()
	certificate, key := filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	renew := func(name string) {
		pemCertificate, pemKey, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(
			os.WriteFile(certificate, pemCertificate, 0o600), os.WriteFile(key, pemKey, 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	renew("first")
	config, err := ServerTLS(certificate, key, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	made, err := ServerTLS("", "", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	serves := func(config *tls.Config, name string) {
		t.Helper()
		server, client := net.Pipe()
		defer server.Close()
		defer client.Close()
		go tls.Server(server, config).Handshake()                         //nolint:errcheck // the client sees it
		conn := tls.Client(client, &tls.Config{InsecureSkipVerify: true}) // compared below
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := conn.ConnectionState().PeerCertificates[0].VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	serves(config, "first")
	renew("second")
	serves(config, "second")
	serves(made, "node-1")
}

// connected has a client.
type connected struct{ client kubernetes.Interface }

// Client implements Clients.
func (c connected) Client() (kubernetes.Interface, error) { return c.client, nil }
