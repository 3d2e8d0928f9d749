// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

const (
	// accessLimit is how long the API server may take to say who may read.
	accessLimit = 5 * time.Second
	// accessTTL is how long its answer counts, as with the kubelet's and the scheduler's own.
	accessTTL = 10 * time.Second
)

// access lets those read whom the API server lets: whoever sends a bearer token that a TokenReview
// accepts, of a user whom a SubjectAccessReview allows the request's path, as kube-scheduler does
// for its metrics. The kubelet's identity may ask for both. Whoever is on this machine may read, as
// on an address of this machine alone. It is safe for concurrent use.
//
// The library of the API server for this would bring a CEL compiler into each node's memory.
type access struct {
	connect func() (kubernetes.Interface, error)
	answers *cache.Expiring // statuses by digest of token and path
}

// newAccess returns the access that the API server of a kubeconfig gives, which may appear later.
func newAccess(kubeconfig string) *access {
	var mu sync.Mutex
	var client kubernetes.Interface
	return &access{answers: cache.NewExpiring(), connect: func() (kubernetes.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		if client == nil {
			made, err := newClient(kubeconfig)
			if err != nil {
				return nil, err
			}
			client = made
		}
		return client, nil
	}}
}

// guard answers requests that may not read: 401 without a token that counts, 403 for a user who is
// not allowed, 503 while the API server cannot be asked.
func (a *access) guard(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if status := a.status(request); status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		handler.ServeHTTP(w, request)
	})
}

// allows reports whether a request may read.
func (a *access) allows(request *http.Request) bool { return a.status(request) == http.StatusOK }

// status says what becomes of a request.
func (a *access) status(request *http.Request) int {
	if isLocal(request.RemoteAddr) {
		return http.StatusOK
	}
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "bearer") || token == "" {
		return http.StatusUnauthorized
	}
	key := sha256.Sum256([]byte(request.URL.Path + " " + token))
	if known, ok := a.answers.Get(key); ok {
		return known.(int)
	}
	ctx, cancel := context.WithTimeout(request.Context(), accessLimit)
	defer cancel()
	status, err := a.ask(ctx, token, request.URL.Path)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot find out whether a request may read", logkey.Path, request.URL.Path,
			logkey.Remote, request.RemoteAddr, logkey.Reason, err.Error())
		return http.StatusServiceUnavailable
	}
	a.answers.Set(key, status, accessTTL)
	return status
}

// ask asks the API server.
func (a *access) ask(ctx context.Context, token, path string) (status int, err error) {
	client, err := a.connect()
	if err != nil {
		return 0, err
	}
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review a token: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	allowed, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the access of user %q: %w", user.Username, err)
	}
	if !allowed.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// isLocal reports whether only this machine reaches an address.
func isLocal(address string) bool {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && resolved.IP.IsLoopback()
}

// serverTLS returns the configuration of a server with the certificate of the files, which are read
// for each connection; or, without files, with one for the host's name that is made now.
func serverTLS(certificate, key, hostname string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if certificate == "" {
		pemCertificate, pemKey, err := cert.GenerateSelfSignedCertKey(hostname, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("make a certificate for %s: %w", hostname, err)
		}
		made, err := tls.X509KeyPair(pemCertificate, pemKey)
		if err != nil {
			return nil, fmt.Errorf("make a certificate for %s: %w", hostname, err)
		}
		config.Certificates = []tls.Certificate{made}
		return config, nil
	}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		read, err := tls.LoadX509KeyPair(certificate, key)
		return &read, err
	}
	return config, nil
}

// validateMetrics says what of the flags for metrics cannot be.
func (o *Options) validateMetrics() error {
	if (o.MetricsCertificate == "") != (o.MetricsKey == "") {
		return errors.New("--metrics-tls-cert-file and --metrics-tls-private-key-file need each other: give both or " +
			"none")
	}
	if o.MetricsAddress == "" {
		return nil
	}
	if _, err := net.ResolveTCPAddr("tcp", o.MetricsAddress); err != nil {
		return fmt.Errorf("--metrics-bind-address: %w; want an address such as 127.0.0.1:10261, or nothing", err)
	}
	if isLocal(o.MetricsAddress) {
		return nil
	}
	if o.Kubeconfig == "" {
		return fmt.Errorf("--metrics-bind-address=%s is reached from other machines, and without --kubeconfig "+
			"there is no API server that knows who may read; use one such as 127.0.0.1:10261, or nothing",
			o.MetricsAddress)
	}
	if o.MetricsCertificate != "" {
		if _, err := tls.LoadX509KeyPair(o.MetricsCertificate, o.MetricsKey); err != nil {
			return fmt.Errorf("--metrics-tls-cert-file: %w", err)
		}
	}
	return nil
}
