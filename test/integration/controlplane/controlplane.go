// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real etcd and a real kube-apiserver inside the test's own process: no
// root, no programs to build, ready in seconds. There are no nodes and no controllers; a test makes
// the Node objects it wants.
//
// Authentication and authorization are those of a cluster: client certificates, Node and RBAC
// authorizers, NodeRestriction, admission policies; and the scheduler has the rights of
// deploy/rbac. Only service accounts are missing, as no controller makes them.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/pki"
)

// ControlPlane is a running API server with its etcd.
type ControlPlane struct {
	// Admin is a client that may do everything.
	Admin *kube.Client

	dir       string
	address   string
	authority *pki.Authority
	cancel    context.CancelFunc
	ended     chan error // what the API server's run returned
	stopEtcd  func()
}

// Start starts a control plane; arguments are more kube-apiserver flags. It returns when the server
// is ready for requests. The feature gates of Kubernetes belong to the whole process, so there can
// be only one in it; and what the server logs through klog goes to a file in a temporary directory.
func Start(ctx context.Context, arguments ...string) (*ControlPlane, error) {
	dir, err := os.MkdirTemp("", "kubedevice-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	c := &ControlPlane{dir: dir, ended: make(chan error, 1), cancel: func() {}, stopEtcd: func() {}}
	if err := c.start(ctx, arguments); err != nil {
		log, _ := os.ReadFile(c.file("kube-apiserver.log")) // nothing to show then
		return nil, fmt.Errorf("start a control plane: %w\n%s", errors.Join(err, c.Stop()), log[max(0, len(log)-4096):])
	}
	return c, nil
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.dir, name) }

func (c *ControlPlane) start(ctx context.Context, arguments []string) error {
	if err := logToFile(c.file("kube-apiserver.log")); err != nil {
		return err
	}
	etcd, stop, err := startEtcd(ctx, c.dir)
	if err != nil {
		return err
	}
	c.stopEtcd = stop
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.address = listener.Addr().String()
	options, err := c.options(etcd, listener, arguments)
	if err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	if err := runAPIServer(run, options, c.ended); err != nil {
		return err
	}
	if c.Admin, err = c.Client("admin", "system:masters"); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	return c.installRights(ctx)
}

// installRights gives the scheduler the rights of deploy/rbac.
func (c *ControlPlane) installRights(ctx context.Context) error {
	for _, text := range bytes.Split(deploy.SchedulerRights, []byte("\n---\n")) {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			return err
		}
		switch object := object.(type) {
		case *rbacv1.ClusterRole:
			_, err = c.Admin.RbacV1().ClusterRoles().Create(ctx, object, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			_, err = c.Admin.RbacV1().ClusterRoleBindings().Create(ctx, object, metav1.CreateOptions{})
		case *corev1.Namespace:
			_, err = c.Admin.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{})
		case *rbacv1.Role:
			_, err = c.Admin.RbacV1().Roles(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			_, err = c.Admin.RbacV1().RoleBindings(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
		default:
			err = fmt.Errorf("deploy/rbac has a %T", object)
		}
		if err != nil {
			return err
		}
	}
	scheduler, err := c.Admin.As("system:kube-scheduler")
	if err != nil {
		return err
	}
	return scheduler.AwaitRights(ctx, // one of each binding
		authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "eviction"},
		authorizationv1.ResourceAttributes{
			Namespace: schedulerapi.Namespace, Verb: "update", Group: coordinationv1.GroupName, Resource: "leases",
		},
	)
}

// logToFile sends all that this process logs through klog to a file, errors included.
func logToFile(path string) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	return flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL", "-log_file=" + path})
}

// Client returns a client that has this user's certificate, with these groups.
func (c *ControlPlane) Client(user string, groups ...string) (*kube.Client, error) {
	pair, err := c.authority.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return kube.NewClient(&rest.Config{
		Host: "https://" + c.address,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.authority.Certificate, CertData: pair.Public, KeyData: pair.Private,
		},
	})
}

// pollInterval is how often the server's readiness is checked.
const pollInterval = 20 * time.Millisecond

func (c *ControlPlane) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		notReady := c.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if notReady == nil {
			return nil
		}
		select {
		case err := <-c.ended:
			c.ended <- err // for Stop
			return fmt.Errorf("the API server has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w: %w", context.Cause(ctx), notReady)
		case <-ticker.C:
		}
	}
}

// stopTimeout is how long the API server may take to end its requests.
const stopTimeout = 30 * time.Second

// Stop ends the control plane and removes its files.
func (c *ControlPlane) Stop() error {
	c.cancel()
	var err error
	if c.address != "" {
		select {
		case err = <-c.ended:
		case <-time.After(stopTimeout):
			err = fmt.Errorf("stop the control plane: the API server has not ended after %v", stopTimeout)
		}
	}
	c.stopEtcd()
	return errors.Join(err, os.RemoveAll(c.dir))
}
