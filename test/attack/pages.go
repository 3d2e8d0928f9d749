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

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/await"
)

// pages are attempts to read what the programs serve.
func pages() []*Attempt {
	anonymous := []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:unauthenticated"}}
	const viewer = "kubedevice-devices-viewer"
	api := "https://127.0.0.1:" + apiPort + schedulerapi.NodesPath
	return []*Attempt{
		{
			ID: "api-anonymous", Who: Anonymous, What: "reads the scheduler's API without credentials",
			Defence: Rights, Want: everywhere(RefusedByProgram, "40"), Sample: true,
			Try: func(ctx context.Context, s *Stage) (Got, error) { return s.read(ctx, nil, api) },
			Off: Off{How: "everybody is bound to the role that may read it", Try: func(ctx context.Context,
				s *Stage) (Got,
				error) {
				if err := s.bindEverywhere(ctx, viewer, anonymous); err != nil {
					return Got{}, err
				}
				return s.readInTime(ctx, nil, api)
			}},
		},
		{
			ID: "api-tenant", Who: Tenant, What: "reads the scheduler's API with its token", Defence: Rights,
			Want: everywhere(RefusedByProgram, "403"),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				return s.read(ctx, tenant.Config, api)
			},
			Off: Off{How: "it is bound to the role that may read it", Try: func(ctx context.Context, s *Stage) (Got,
				error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				if err := s.bindEverywhere(ctx, viewer, s.subjects("tenant")); err != nil {
					return Got{}, err
				}
				return s.readInTime(ctx, tenant.Config, api)
			}},
		},
		{
			ID: "api-kubelet", Who: Kubelet, What: "reads the scheduler's API with its certificate", Defence: Rights,
			Want: everywhere(RefusedByProgram, "403"),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				kubelet, err := s.cluster.KubeletClient(ghost)
				if err != nil {
					return Got{}, err
				}
				return s.read(ctx, kubelet.Config, api)
			},
			Off: Off{How: "it is bound to the role that may read it", Try: func(ctx context.Context, s *Stage) (Got,
				error) {
				kubelet, err := s.cluster.KubeletClient(ghost)
				if err != nil {
					return Got{}, err
				}
				if err := s.bindEverywhere(ctx, viewer, []rbacv1.Subject{{
					Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:node:" + ghost}}); err != nil {
					return Got{}, err
				}
				return s.readInTime(ctx, kubelet.Config, api)
			}},
		},
		{
			ID: "metrics-scheduler", Who: Anonymous, What: "reads the scheduler's metrics without credentials",
			Defence: Rights, Want: everywhere(RefusedByProgram, "40"),
			Try: func(ctx context.Context, s *Stage) (Got, error) { return s.read(ctx, nil, schedulerMetrics) },
			Off: Off{How: "everybody may read them", Try: func(ctx context.Context, s *Stage) (Got, error) {
				if err := s.makeNamespace(ctx); err != nil {
					return Got{}, err
				}
				if err := s.everywhere(ctx, "metrics",
					[]rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}); err != nil {
					return Got{}, err
				}
				if err := s.bindEverywhere(ctx, s.namespace+"-metrics", anonymous); err != nil {
					return Got{}, err
				}
				return s.readInTime(ctx, nil, schedulerMetrics)
			}},
		},
		{
			ID: "metrics-node", Who: Anonymous, What: "reads kubecri's metrics over the network", Defence: Loopback,
			Want: everywhere(RefusedByProgram, "refused"),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				return s.readOverNetwork(ctx, nil, scheduled, "http://"+s.node(forged).IP+nodeMetrics)
			},
			Off: Off{How: "kubecri serves them on all addresses, and it may read them", Try: readsNodeMetrics},
		},
		{
			ID: "metrics-node-tenant", Who: Tenant, Defence: Rights,
			What: "reads kubecri's metrics with its token where they are served on all addresses",
			Want: everywhere(RefusedByProgram, "403"),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				return s.readOverNetwork(ctx, tenant.Config, forged, "https://"+s.node(scheduled).IP+nodeMetrics)
			},
			Off: Off{How: "it may read them", Try: readsNodeMetrics},
		},
	}
}

const (
	schedulerMetrics = "https://127.0.0.1:10259/metrics"
	nodeMetrics      = ":10261/metrics"
)

// readsNodeMetrics reads kubecri's metrics as a tenant that may.
func readsNodeMetrics(ctx context.Context, s *Stage) (got Got, err error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	if err := s.everywhere(ctx, "tenant",
		[]rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}); err != nil {
		return Got{}, err
	}
	err = await.Until(ctx, "the metrics of node "+s.node(scheduled).Name, func(ctx context.Context) (bool, error) {
		got, err = s.readOverNetwork(ctx, tenant.Config, forged, "https://"+s.node(scheduled).IP+nodeMetrics)
		return got.Outcome == Succeeds, err
	})
	return got, err
}

// read reads what a program of the control plane serves. It succeeds if that is served.
func (s *Stage) read(ctx context.Context, credentials *rest.Config, url string) (Got, error) {
	status, content, err := s.get(ctx, credentials, url, func(ctx context.Context, network, address string) (net.Conn,
		error) {
		return s.cluster.ControlPlane().Dial(ctx, network, address)
	})
	if err != nil {
		return Got{}, err
	}
	if status == http.StatusOK {
		return Got{Succeeds, fmt.Sprintf("%d bytes", len(content))}, nil
	}
	return Got{RefusedByProgram, fmt.Sprintf("%d %s", status, content)}, nil
}

// readInTime reads again until that succeeds: programs remember for a while who may not.
func (s *Stage) readInTime(ctx context.Context, credentials *rest.Config, url string) (got Got, err error) {
	err = await.Until(ctx, url+" to be served", func(ctx context.Context) (bool, error) {
		got, err = s.read(ctx, credentials, url)
		return got.Outcome == Succeeds, err
	})
	return got, err
}

// readOverNetwork reads kubecri's metrics of a node from another node.
func (s *Stage) readOverNetwork(ctx context.Context, credentials *rest.Config, from int, url string) (Got, error) {
	status, content, err := s.get(ctx, credentials, url,
		func(ctx context.Context, network, address string) (net.Conn, error) {
			return s.node(from).Sandbox().Dial(ctx, network, address)
		})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Got{RefusedByProgram, err.Error()}, nil
	case err != nil:
		return Got{}, err
	case status == http.StatusOK && strings.Contains(content, "kubecri_"):
		return Got{Succeeds, fmt.Sprintf("%d bytes", len(content))}, nil
	default:
		return Got{RefusedByProgram, fmt.Sprintf("%d %s", status, content)}, nil
	}
}
