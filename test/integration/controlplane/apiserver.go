// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/kubedevice/kubedevice/test/pki"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// options returns the API server's options. They are put together as the command does it from its
// arguments, but not by the command, which would also take the process's signals.
func (c *ControlPlane) options(etcd string, listener net.Listener,
	arguments []string) (*options.ServerRunOptions, error) {
	if err := c.writeCredentials(); err != nil {
		return nil, err
	}
	o := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	err := flags.Parse(append([]string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--endpoint-reconciler-type=none",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
		"--client-ca-file=" + c.file("ca.crt"),
		"--tls-cert-file=" + c.file("server.crt"),
		"--tls-private-key-file=" + c.file("server.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file("service-accounts.pub"),
		"--service-account-signing-key-file=" + c.file("service-accounts.key"),
	}, arguments...))
	if err != nil {
		return nil, fmt.Errorf("set the API server's options: %w", err)
	}
	o.SecureServing.Listener = listener
	return o, nil
}

func (c *ControlPlane) writeCredentials() error {
	authority, err := pki.NewAuthority("kubedevice-controlplane")
	if err != nil {
		return err
	}
	c.authority = authority
	server, err := authority.Server([]string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	serviceAccounts, err := pki.NewKeyPair()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt":               authority.Certificate,
		"server.crt":           server.Public,
		"server.key":           server.Private,
		"service-accounts.pub": serviceAccounts.Public,
		"service-accounts.key": serviceAccounts.Private,
	} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// runAPIServer starts the API server, which runs until ctx ends, and then sends what its run
// returned.
func runAPIServer(ctx context.Context, o *options.ServerRunOptions, ended chan<- error) error {
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set the API server's feature gates: %w", err)
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete the API server's options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("check the API server's options: %w", utilerrors.NewAggregate(errs))
	}
	go func() { ended <- app.Run(ctx, completed) }()
	return nil
}
