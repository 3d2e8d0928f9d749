// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubedevice/kubedevice/test/pki"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// identity is a user of the API server, and the kubeconfig file that makes it one.
type identity struct {
	path, server, user string
	groups             []string
}

// writeKubeconfig writes the identity's kubeconfig with a certificate of its own in it.
func (i identity) writeKubeconfig(authority *pki.Authority) error {
	pair, err := authority.Client(i.user, i.groups...)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(i.path), 0o755); err != nil {
		return err
	}
	const name = "kubedevice"
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: i.server, CertificateAuthorityData: authority.Certificate},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			i.user: {ClientCertificateData: pair.Public, ClientKeyData: pair.Private},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: i.user}},
		CurrentContext: name,
	}, i.path)
	if err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", i.user, err)
	}
	return nil
}
