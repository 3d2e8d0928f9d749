// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)

// server is a scheduler, or who claims to be one.
type server struct {
	*httptest.Server
	connections, certificates atomic.Int32
	tokens                    chan string // of requests
}

// serve starts a server with a certificate of its own, which requests those of clients.
func serve(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("scheduler", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{tokens: make(chan string, 100)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.tokens <- r.Header.Get("Authorization")
		answer(w, r)
	}))
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { s.connections.Add(1); return nil, nil },
		VerifyConnection: func(state tls.ConnectionState) error {
			s.certificates.Add(int32(len(state.PeerCertificates)))
			return nil
		},
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// leads answers as a scheduler that leads, or that stands by.
func leads(leads bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(schedulerapi.Server{Instance: schedulerapi.Instance{Leads: leads}}) // it is read
	}
}

// lease publishes that a server is a scheduler, on this machine and without a pod.
func (s *server) lease(t *testing.T, name string, leads bool) *coordinationv1.Lease {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return newLease(t, name, now, schedulerapi.Address{
		Host: host, BindAddress: "127.0.0.1", Port: s.Listener.Addr().(*net.TCPAddr).Port, Leads: leads,
		PublicKey: schedulerapi.Fingerprint(s.Certificate()),
	})
}

func newLease(t *testing.T, name string, renewed time.Time, address schedulerapi.Address) *coordinationv1.Lease {
	t.Helper()
	value, err := json.Marshal(address)
	if err != nil {
		t.Fatal(err)
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: schedulerapi.Namespace,
			Annotations: map[string]string{schedulerapi.AddressAnnotation: string(value)},
		},
		Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

// options are those of a user with a token and a certificate.
func options(t *testing.T, leases ...*coordinationv1.Lease) Options {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("alice", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for _, lease := range leases {
		objects = append(objects, lease)
	}
	return Options{
		Config: &rest.Config{
			Host: "https://api.example:6443", BearerToken: "secret",
			TLSClientConfig: rest.TLSClientConfig{CAData: certificate, CertData: certificate, KeyData: key},
		},
		Leases: fake.NewClientset(objects...).CoordinationV1(), Now: func() time.Time { return now },
	}
}

func TestTheSchedulerThatLeadsIsPreferred(t *testing.T) {
	standby, leader := serve(t, leads(false)), serve(t, leads(true))
	o := options(t, standby.lease(t, "a", false), leader.lease(t, "b", true),
		newLease(t, "0-gone", now.Add(-time.Minute), schedulerapi.Address{Leads: true}),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "another", Namespace: schedulerapi.Namespace}})
	client, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if client.Instance.Name != "b" || !client.Server.Leads || standby.connections.Load() > 0 {
		t.Errorf("%+v answers", client.Instance)
	}
	if token := <-leader.tokens; token != "Bearer secret" || leader.certificates.Load() == 0 {
		t.Errorf("the leader gets the token %q and %d certificates", token, leader.certificates.Load())
	}

	// By the clock of a machine that is wrong, both have expired.
	wrong := o
	wrong.Now = func() time.Time { return now.Add(time.Hour) }
	client, err = Connect(t.Context(), wrong)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()

	leader.Close()
	client, err = Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if client.Instance.Name != "a" {
		t.Errorf("%+v answers when the leader does not", client.Instance)
	}
	o.URL = standby.URL
	client, err = Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if client.Instance.Name != "a" {
		t.Errorf("%+v answers at the address of the other one", client.Instance)
	}
}

// Somebody else answers where a scheduler should: at the published address, and at the one that the
// user names. It learns nothing.
func TestOnlyTheSchedulerGetsCredentials(t *testing.T) {
	scheduler, impostor := serve(t, leads(true)), serve(t, leads(true))
	right := scheduler.lease(t, "a", true)
	address, _, err := schedulerapi.ReadAddress(right)
	if err != nil {
		t.Fatal(err)
	}
	address.Port = impostor.Listener.Addr().(*net.TCPAddr).Port
	replaced := newLease(t, "a", now, address)

	named := options(t, right)
	named.URL = impostor.URL
	for name, o := range map[string]Options{
		"at the published address": options(t, replaced), "at the named address": named,
	} {
		client, err := Connect(t.Context(), o)
		if err == nil {
			client.Close()
			t.Errorf("%s: an impostor is believed", name)
		} else if !strings.Contains(err.Error(), "no credentials were sent") ||
			!strings.Contains(err.Error(), schedulerapi.Fingerprint(impostor.Certificate())) {
			t.Errorf("%s: %v", name, err)
		}
	}
	impostor.Close() // and so no handshake is under way
	if impostor.connections.Load() != 2 || len(impostor.tokens) > 0 || impostor.certificates.Load() > 0 {
		t.Errorf("of %d connections, the impostor got %d requests and %d certificates", impostor.connections.Load(),
			len(impostor.tokens), impostor.certificates.Load())
	}
}

// In TLS 1.2 the client's certificate is there for all to read.
func TestOnlyTLS13IsSpoken(t *testing.T) {
	old := serve(t, leads(true))
	old.TLS.MaxVersion = tls.VersionTLS12
	if client, err := Connect(t.Context(), options(t, old.lease(t, "a", true))); err == nil {
		client.Close()
		t.Error("TLS 1.2 is spoken")
	}
	old.Close()
	if old.connections.Load() == 0 || len(old.tokens) > 0 || old.certificates.Load() > 0 {
		t.Error("the server gets something, or is not reached")
	}
}

func TestAPluginProvidesTheToken(t *testing.T) {
	scheduler := serve(t, leads(true))
	o := options(t, scheduler.lease(t, "a", true))
	o.Config.BearerToken, o.Config.CertData, o.Config.KeyData = "", nil, nil
	o.Config.ExecProvider = &api.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "sh", InteractiveMode: api.NeverExecInteractiveMode,
		Args: []string{"-c", `echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
			"status": {"token": "from-a-plugin"}}'`},
	}
	client, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if token := <-scheduler.tokens; token != "Bearer from-a-plugin" {
		t.Errorf("the scheduler gets %q", token)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := serve(t, leads(true))
	scheduler := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	if client, err := Connect(t.Context(), options(t, scheduler.lease(t, "a", true))); err == nil {
		client.Close()
		t.Error("a redirect is an answer")
	}
	if elsewhere.connections.Load() > 0 {
		t.Error("the redirect is followed")
	}
}

func TestPostponedRequestsAreRetried(t *testing.T) {
	var tries atomic.Int32
	scheduler := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) < 3 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		leads(true)(w, r)
	})
	client, err := Connect(t.Context(), options(t, scheduler.lease(t, "a", true)))
	if err != nil || tries.Load() != 3 {
		t.Fatalf("%d tries: %v", tries.Load(), err)
	}
	client.Close()
}

func TestErrorsSayWhatToDo(t *testing.T) {
	refusing := func(code int, reason metav1.StatusReason) *server {
		return serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind": "Status", "code": %d, "reason": %q, "message": "no"}`, code, reason)
		})
	}
	forbidden := refusing(http.StatusForbidden, metav1.StatusReasonForbidden)
	unknown := refusing(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	working := serve(t, leads(true))
	elsewhere := schedulerapi.Address{Host: "cp9", BindAddress: "127.0.0.1", Port: 10262}
	impersonating := options(t, working.lease(t, "a", true))
	impersonating.Config.Impersonate.UserName = "bob"
	wrong := options(t, working.lease(t, "a", true))
	wrong.URL = "http://127.0.0.1:1"
	unreadable := newLease(t, "a", now, schedulerapi.Address{})
	unreadable.Annotations[schedulerapi.AddressAnnotation] = "{"
	for name, test := range map[string]struct {
		options Options
		says    string
	}{
		"no scheduler":           {options(t), "is deploy/rbac applied?"},
		"one that is unreadable": {options(t, unreadable), "annotation kubedevice.io/scheduler-api of lease"},
		"one that is elsewhere":  {options(t, newLease(t, "a", now, elsewhere)), "of the machine cp9 alone; run this"},
		"not for this user":      {options(t, forbidden.lease(t, "a", true)), "kubedevice-devices-viewer"},
		"an unknown user":        {options(t, unknown.lease(t, "a", true)), "--client-ca-file must be those"},
		"as somebody else":       {impersonating, "leave out --as"},
		"another scheme":         {wrong, "want https://HOST:PORT"},
	} {
		client, err := Connect(t.Context(), test.options)
		if err == nil {
			client.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v; want %q", name, err, test.says)
		}
	}
	if _, err := Connect(t.Context(), options(t, forbidden.lease(t, "a", true))); !apierrors.IsForbidden(err) {
		t.Errorf("%v is not forbidden", err)
	}
}

func TestTheRightThatIsMissingIsThatOfTheRequest(t *testing.T) {
	scheduler := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == schedulerapi.ServerPath {
			leads(true)(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}`)
	})
	client, err := Connect(t.Context(), options(t, scheduler.lease(t, "a", true)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for method, want := range map[string]string{
		http.MethodPost: `"kubectl auth can-i post /devices/x"`, http.MethodGet: `"kubectl auth can-i get /devices/x"`,
	} {
		err := client.Query(t.Context(), method, "/devices/x", nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
