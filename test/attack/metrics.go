// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/test/await"
)

// readPage reads what a program serves, on the control plane or over the network from a node. It
// succeeds if that is served and has a text in it. Soon says that it reads again until then:
// programs remember for a while who may not.
func readPage(ctx context.Context, p *trial, arguments struct {
	URL  string `json:"url"`
	From string `json:"from"`
	With string `json:"with"`
	Soon bool   `json:"soon"`
}) (got Got, err error) {
	var credentials *rest.Config
	if p.as != string(Anonymous) {
		client, err := p.client(ctx)
		if err != nil {
			return Got{}, err
		}
		credentials = client.Config
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if from := p.nodeIndex(arguments.From); from >= 0 {
			return p.node(from).Sandbox().Dial(ctx, network, address)
		}
		return p.cluster.ControlPlane().Dial(ctx, network, address)
	}
	read := func(ctx context.Context) (Got, error) {
		status, content, err := p.get(ctx, credentials, arguments.URL, dial)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED) && arguments.From != "":
			return Got{RefusedByProgram, err.Error()}, nil
		case err != nil:
			return Got{}, err
		case status == http.StatusOK && strings.Contains(content, arguments.With):
			return Got{Succeeds, fmt.Sprintf("%d bytes", len(content))}, nil
		default:
			return Got{RefusedByProgram, fmt.Sprintf("%d %s", status, content)}, nil
		}
	}
	if !arguments.Soon {
		return read(ctx)
	}
	err = await.Until(ctx, arguments.URL+" to be served", func(ctx context.Context) (bool, error) {
		got, err = read(ctx)
		return got.Outcome == Succeeds, err
	})
	return got, err
}

// bindRole binds a cluster role in the whole cluster to an identity of the attempt.
func bindRole(ctx context.Context, p *trial, arguments struct {
	Role string `json:"role"`
	To   string `json:"to"`
}) (Got, error) {
	subjects := p.subjects(arguments.To)
	if node, is := strings.CutPrefix(arguments.To, kubeletOf); is {
		subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:node:" + node}}
	}
	if arguments.To == string(Anonymous) {
		const everybody = "system:unauthenticated"
		subjects = []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: everybody}}
	}
	return Got{}, p.bindEverywhere(ctx, arguments.Role, subjects)
}
