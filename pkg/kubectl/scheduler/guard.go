// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// guard lets connections through that end at one of the expected schedulers. It is safe for
// concurrent use.
type guard struct {
	expected  []Instance
	found     atomic.Pointer[Instance] // the last one that was verified
	transport *http.Transport
}

// impostorError says that another user answers than the scheduler that is expected.
type impostorError struct {
	address, presented string
	expected           []Instance
}

func (e *impostorError) Error() string {
	expected := "none of the schedulers that publish where they answer"
	if len(e.expected) == 1 {
		expected = fmt.Sprintf("not %s, which scheduler %s publishes", e.expected[0].PublicKey, e.expected[0].Name)
	}
	return fmt.Sprintf("%s presents a certificate with the public key %s, %s: no credentials were sent; is it the "+
		"scheduler of this cluster? Its key may have changed a moment ago: then try again", e.address, e.presented,
		expected)
}

// errImpersonation is why the scheduler is not queried.
var errImpersonation = errors.New("the scheduler knows no impersonation, and would answer with your own rights: " +
	"leave out --as, --as-group and --as-uid")

// roundTripper returns what sends the credentials of a configuration to the schedulers that are
// expected at an address, and to no other server.
func (g *guard) roundTripper(config *rest.Config, base string) (http.RoundTripper, error) {
	if as := config.Impersonate; as.UserName != "" || as.UID != "" || len(as.Groups) > 0 || len(as.Extra) > 0 {
		return nil, errImpersonation
	}
	// The credentials are the API server's: tokens, client certificates, and the plugins that
	// provide them, which know the API server alone. How that is verified is not about the
	// scheduler.
	config = rest.CopyConfig(config)
	config.WrapTransport = nil
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{}
	}
	tlsConfig.ServerName, tlsConfig.RootCAs, tlsConfig.NextProtos = "", nil, nil
	tlsConfig.InsecureSkipVerify = true // no authority has signed the certificate: its key is compared instead
	tlsConfig.VerifyConnection = g.verify(base)
	// In TLS 1.3 the client's certificate follows the proof that the server has its key, and is
	// encrypted. In TLS 1.2 it is sent in the clear.
	tlsConfig.MinVersion = tls.VersionTLS13
	g.transport = &http.Transport{DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, tlsConfig) // without a name, for which the server might have another certificate
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		return conn, nil
	}}
	return rest.HTTPWrappersForConfig(config, g.transport)
}

// verify returns what ends a handshake with anybody else than the schedulers that are expected. It
// is called for each connection, before the client sends its certificate.
func (g *guard) verify(base string) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the server has no certificate")
		}
		presented := schedulerapi.Fingerprint(state.PeerCertificates[0])
		i := slices.IndexFunc(g.expected, func(i Instance) bool { return i.PublicKey == presented })
		if i < 0 {
			return &impostorError{base, presented, g.expected}
		}
		g.found.Store(&g.expected[i])
		return nil
	}
}

// explain says what to do about a connection that failed.
func explain(err error) error {
	var impostor *impostorError
	if errors.As(err, &impostor) {
		return impostor
	}
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return fmt.Errorf("reach the scheduler at %s: %w", failed.URL, failed.Err)
	}
	return err
}
