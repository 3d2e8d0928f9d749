// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/bundle"
	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/scheduler"
)

// defaultPageSize is that of kubectl get.
const defaultPageSize = 500

// environment is what the commands share.
type environment struct {
	genericiooptions.IOStreams
	// client returns the API server's client, and the namespace that is meant.
	client func() (corev1client.CoreV1Interface, string, error)
	// clusterName returns what the kubeconfig calls the cluster, or "" if it has no name there.
	clusterName func() string
	// clients returns the clients of a report.
	clients func() (bundle.Clients, error)
	// batch returns the client of Jobs.
	batch func() (batchclient.BatchV1Interface, error)
	// resources returns the client of ResourceClaims and ResourceSlices.
	resources func() (resourceclient.ResourceV1Interface, error)
	// schedulers says how KubeDevice's schedulers are reached.
	schedulers func() (scheduler.Options, error)
	// placement connects to a scheduler for questions about placement: the one with this URL, or
	// for "" the one that leads. The caller disconnects.
	placement func(ctx context.Context, url string) (to querier, disconnect func(), err error)
	// terminal is what Out is.
	terminal columns.Terminal
	// browse shows an address in the user's browser.
	browse   func(ctx context.Context, url string) error
	now      func() time.Time
	pageSize int64
}

// reader returns what reads the cluster, and the namespace that is meant.
func (e *environment) reader() (*cluster.Reader, string, error) {
	client, namespace, err := e.client()
	if err != nil {
		return nil, "", err
	}
	return &cluster.Reader{Client: client, PageSize: e.pageSize}, namespace, nil
}

// core returns the API server's client alone.
func (e *environment) core() (corev1client.CoreV1Interface, error) {
	client, _, err := e.client()
	return client, err
}

// querier queries the scheduler. in and out are JSON; an error of the scheduler is an API status.
type querier interface {
	Query(ctx context.Context, method, path string, in, out any) error
}
