// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"testing"

	"github.com/kubedevice/kubedevice/test/pki"
)

func newAuthority(t *testing.T) (*pki.Authority, *x509.CertPool) {
	t.Helper()
	authority, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority.Certificate) {
		t.Fatal("the authority's certificate is not PEM")
	}
	return authority, pool
}

func keyPair(t *testing.T) func(pair pki.Pair, err error) tls.Certificate {
	return func(pair pki.Pair, err error) tls.Certificate {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := tls.X509KeyPair(pair.Public, pair.Private)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
}

// shake lets a client and a server meet, and returns the error of either.
func shake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	result := make(chan error, 1)
	go func() { result <- tls.Server(a, server).HandshakeContext(t.Context()) }()
	if err := tls.Client(b, client).HandshakeContext(t.Context()); err != nil {
		a.Close()
		<-result
		return err
	}
	return <-result
}

func TestClientsAndServersOfOneAuthorityTrustEachOther(t *testing.T) {
	authority, pool := newAuthority(t)
	stranger, _ := newAuthority(t)
	server := &tls.Config{
		Certificates: []tls.Certificate{
			keyPair(t)(authority.Server([]string{"server"}, []net.IP{net.IPv4(10, 0, 0, 1)})),
		},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MaxVersion: tls.VersionTLS12, // where a refused client learns of it in the handshake
	}
	for name, test := range map[string]struct {
		client   tls.Certificate
		server   string
		accepted bool
	}{
		"a client of the authority, by host name": {keyPair(t)(authority.Client("user", "group")), "server", true},
		"a client of the authority, by address":   {keyPair(t)(authority.Client("user", "group")), "10.0.0.1", true},
		"a server that has another name":          {keyPair(t)(authority.Client("user", "group")), "10.0.0.2", false},
		"a client of another authority":           {keyPair(t)(stranger.Client("user", "group")), "server", false},
		"a server as a client": {
			keyPair(t)(authority.Server([]string{"server"}, nil)), "server", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := &tls.Config{Certificates: []tls.Certificate{test.client}, RootCAs: pool, ServerName: test.server}
			if err := shake(t, server, client); (err == nil) != test.accepted {
				t.Errorf("handshake: %v, want it accepted: %v", err, test.accepted)
			}
		})
	}
}

func TestAClientCertificateNamesUserAndGroups(t *testing.T) {
	authority, _ := newAuthority(t)
	certificate := keyPair(t)(authority.Client("system:node:n1", "system:nodes", "others"))
	subject := certificate.Leaf.Subject
	groups := slices.Sorted(slices.Values(subject.Organization))
	if subject.CommonName != "system:node:n1" || !slices.Equal(groups, []string{"others", "system:nodes"}) {
		t.Errorf("subject %v", subject)
	}
}
