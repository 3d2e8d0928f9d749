// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package telemetry serves health and metrics to those who may read them: everybody on this
// machine, and on addresses that other machines reach those whom the API server lets.
package telemetry

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
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
	// reviewTimeout is how long the API server may take to say who may read.
	reviewTimeout = 5 * time.Second
	// reviewTTL is how long its answer counts, as with the kubelet's and the scheduler's own.
	reviewTTL = 10 * time.Second
)

// Clients connects to the API server.
type Clients interface {
	// Client returns a client; an error says that there is none yet.
	Client() (kubernetes.Interface, error)
}

// Access lets those read whom the API server lets: readers that send a bearer token that a
// TokenReview accepts, of a user whom a SubjectAccessReview allows the request's path, as
// kube-scheduler does for its metrics. The kubelet's identity may create both. All readers on this
// machine may read, as on an address of this machine alone. It is safe for concurrent use.
//
// The library of the API server for this would bring a CEL compiler into each node's memory.
type Access struct {
	clients Clients
	answers *cache.Expiring // statuses by digest of token and path

	mu     sync.Mutex
	client kubernetes.Interface // nil before the first one
}

// NewAccess returns the access that the API server gives, which may appear later.
func NewAccess(clients Clients) *Access {
	return &Access{clients: clients, answers: cache.NewExpiring()}
}

// connect returns the client.
func (a *Access) connect() (kubernetes.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		made, err := a.clients.Client()
		if err != nil {
			return nil, err
		}
		a.client = made
	}
	return a.client, nil
}

// Guard answers requests that may not read: 401 without a token that counts, 403 for a user who is
// not allowed, 503 while the API server does not answer.
func (a *Access) Guard(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if status := a.status(request); status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		handler.ServeHTTP(w, request)
	})
}

// Allows reports whether a request may read.
func (a *Access) Allows(request *http.Request) bool { return a.status(request) == http.StatusOK }

// status says what becomes of a request.
func (a *Access) status(request *http.Request) int {
	if IsLocal(request.RemoteAddr) {
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
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	status, err := a.review(ctx, token, request.URL.Path)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot determine whether a request may read", logkey.Path, request.URL.Path,
			logkey.Remote, request.RemoteAddr, logkey.Reason, err.Error())
		return http.StatusServiceUnavailable
	}
	a.answers.Set(key, status, reviewTTL)
	return status
}

// review has the API server review a token.
func (a *Access) review(ctx context.Context, token, path string) (status int, err error) {
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

// IsLocal reports whether only this machine reaches an address.
func IsLocal(address string) bool {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && resolved.IP.IsLoopback()
}

// ServerTLS returns the configuration of a server with the certificate of the files, which are read
// for each connection; or, without files, with one for the host's name that is made now.
func ServerTLS(certificate, key, hostname string) (*tls.Config, error) {
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
