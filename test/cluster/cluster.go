// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on one machine: etcd, API server, controller
// manager, a scheduler, and nodes, each with its own kubelet, containerd, runc and CRI proxy. It
// needs root and Linux, and leaves the machine as it was.
//
// The control plane and every node live in sandboxes of their own (package sandbox). Addresses are
// the same in every cluster; the only thing that a cluster takes from the machine is one free port
// of 127.0.0.1, in the kubeconfig file.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/test/cgroup"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a running cluster.
type Cluster struct {
	// Client reaches the API server from the machine, as an administrator.
	Client *kube.Client
	// Etcd, APIServer, ControllerManager and Scheduler are the control plane's programs.
	Etcd, APIServer, ControllerManager, Scheduler *Component
	// Nodes are the nodes.
	Nodes []*Node

	options      Options
	layout       layout
	cgroups      *cgroup.Tree
	controlPlane *sandbox.Sandbox
	schedulerURL string

	mu         sync.Mutex
	components []*Component
}

// describe returns the cluster that options describe, of which nothing exists yet.
func describe(options Options) (*Cluster, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can make namespaces and device nodes: run it as root")
	}
	c := &Cluster{options: options, layout: layout{options.Dir}}
	var err error
	if c.cgroups, err = cgroup.Open(cgroup.DefaultMount, CgroupName(options.Dir)); err != nil {
		return nil, err
	}
	c.Etcd = c.newEtcd()
	c.APIServer = c.newAPIServer()
	c.ControllerManager = c.newControllerManager()
	c.Scheduler = c.NewScheduler("kube-scheduler", schedulerPort, options.Scheduler)
	for i, node := range options.Nodes {
		c.Nodes = append(c.Nodes, c.newNode(i, node))
	}
	return c, nil
}

// Start starts a cluster and returns when pods can be scheduled to every node. It first takes down
// what is left of an earlier cluster with the same directory. When it fails, what it has started is
// taken down; the logs stay.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := describe(options)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	unlock, err := c.layout.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	defer unlock()
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", errors.Join(err, c.layout.remove(context.WithoutCancel(ctx))))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.layout.remove(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(c.layout.logs()); err != nil {
		return err
	}
	var doors []sandbox.Door
	for _, to := range []string{controlPlaneIP + ":443", "127.0.0.1:" + DevicesPort} {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		defer listener.Close()
		doors = append(doors, sandbox.Door{Listener: listener, To: to})
	}
	if err := c.writeCredentials("https://" + doors[0].Listener.Addr().String()); err != nil {
		return err
	}
	c.schedulerURL = "https://" + doors[1].Listener.Addr().String()
	for _, node := range c.Nodes {
		if err := node.writeConfig(); err != nil {
			return err
		}
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.openSandboxes(ctx, doors); err != nil {
		return err
	}
	if err := c.makeSealKey(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(ctx) })
	for _, node := range c.Nodes {
		group.Go(func() error { return node.start(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.save()
}

// openSandboxes opens the sandboxes of the control plane, with doors from the machine, and of the
// nodes.
func (c *Cluster) openSandboxes(ctx context.Context, doors []sandbox.Door) error {
	config := c.sandboxConfig(controlPlaneSandbox)
	config.Doors = doors
	opened, err := sandbox.Open(ctx, config)
	if err != nil {
		return err
	}
	c.controlPlane = opened
	if err := plugControlPlane(opened); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.Nodes {
		group.Go(func() error { return node.open(ctx) })
	}
	return group.Wait()
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := start(c.Etcd, c.APIServer); err != nil {
		return err
	}
	if err := c.awaitAPIServer(ctx); err != nil {
		return err
	}
	// Earlier they would only be refused, as the API server has no RBAC roles before it is ready,
	// and then wait before they try again.
	if err := start(c.ControllerManager, c.Scheduler); err != nil {
		return err
	}
	if err := c.Apply(ctx, c.options.Manifests...); err != nil {
		return err
	}
	return c.AwaitReady(ctx)
}

func start(components ...*Component) error {
	for _, component := range components {
		if err := component.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) sandboxConfig(name string) sandbox.Config {
	return sandbox.Config{
		Name:    name,
		Dir:     c.layout.sandbox(name),
		Init:    filepath.Join(c.options.Programs, "sandboxinit"),
		Log:     c.layout.log(name, "sandbox"),
		Visible: append([]string{c.options.Dir, c.options.Programs}, c.options.Visible...),
		Cgroup:  c.cgroups.Sub(name),
	}
}

// connect makes the clients from the administrator's kubeconfig.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.layout.kubeconfig())
	if err != nil {
		return err
	}
	c.Client, err = kube.NewClient(config)
	return err
}

// Stop takes the cluster down, as Down does.
func (c *Cluster) Stop(ctx context.Context) error { return Down(ctx, c.options.Dir) }

// Component returns a program of the cluster by its name, such as node-1/kubelet.
func (c *Cluster) Component(name string) (*Component, error) {
	var names []string
	for _, component := range c.Components() {
		if component.Name == name {
			return component, nil
		}
		names = append(names, component.Name)
	}
	return nil, fmt.Errorf("the cluster has no program %q: it has %q", name, names)
}

// Programs is the directory with what package binaries built.
func (c *Cluster) Programs() string { return c.options.Programs }

// Sandbox returns the namespaces of a node, or of the control plane, by its name.
func (c *Cluster) Sandbox(name string) (*sandbox.Sandbox, error) {
	if name == controlPlaneSandbox {
		return c.controlPlane, nil
	}
	for _, node := range c.Nodes {
		if node.Name == name {
			return node.sandbox, nil
		}
	}
	return nil, fmt.Errorf("the cluster has no sandbox %q: it has %s and %s to %s", name, controlPlaneSandbox,
		nodeName(0),
		nodeName(len(c.Nodes)-1))
}

// Components returns the programs of the cluster, those added to nodes included.
func (c *Cluster) Components() []*Component {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.components)
}
