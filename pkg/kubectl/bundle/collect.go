// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// systems are the namespaces of the schedulers, the leases by which they agree who leads, and
// kubecri's pods: the control plane's, and that of deploy/second-scheduler.
var systems = []string{metav1.NamespaceSystem, "kubedevice-system"}

// collector collects the contents of one bundle, one part after the other.
type collector struct {
	contents
	Options
	clients Clients
	reader  cluster.Reader

	server      string // version of the API server
	nodes       []*corev1.Node
	pods        []*corev1.Pod // with devices
	nodesAreIn  bool          // they could be read
	podsAreIn   bool
	programs    []*program
	eventsAfter time.Time
}

// collect reads everything. A part that cannot be read is missing, and the others go on. The error
// says why there is nothing at all to be read: there is no API server, or ctx has ended.
func collect(ctx context.Context, clients Clients, options Options) (*contents, error) {
	c := &collector{
		contents: contents{left: maxTotal}, Options: options, clients: clients,
		reader:      cluster.Reader{Client: clients.Core, PageSize: options.PageSize},
		eventsAfter: options.Now.Add(-options.Since),
	}
	if err := c.readServer(ctx); err != nil {
		return nil, err
	}
	c.try(ctx, "nodes.yaml", c.readNodes)
	c.try(ctx, "pods.yaml", c.readPods)
	c.try(ctx, "tables", c.writeTables)
	c.try(ctx, "events.yaml", c.readEvents)
	c.try(ctx, "policies.yaml", c.readPolicies)
	c.try(ctx, "leases.yaml", c.readLeases)
	c.try(ctx, "logs and metrics", c.findPrograms)
	c.findNeighbours()
	for _, p := range c.programs {
		if p.container == scheduler {
			c.try(ctx, p.metricsFile(), func(ctx context.Context) error { return c.readMetrics(ctx, p) })
		}
		for _, previous := range p.logs(c.NoLogs) {
			c.try(ctx, p.logFile(previous), func(ctx context.Context) error { return c.readLog(ctx, p, previous) })
		}
	}
	c.try(ctx, "versions.yaml", c.writeVersions)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.parts, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	return &c.contents, nil
}

// try collects a part, unless ctx has ended.
func (c *collector) try(ctx context.Context, name string, read func(context.Context) error) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	switch err := read(ctx); {
	case err == nil:
	case ctx.Err() != nil:
		c.miss(name, "the API server took longer than %v: %v", partTimeout, err)
	default:
		c.miss(name, "%v", err)
	}
}

// readServer returns an error if there is no API server.
func (c *collector) readServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	version, err := c.clients.Version.ServerVersionWithContext(ctx)
	switch {
	case err == nil:
		c.server = version.GitVersion
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown, // not an answer of an API server
		apierrors.IsUnauthorized(err): // nothing can be read
		return err
	default:
		c.miss("the API server's version", "%v", err)
	}
	return nil
}

func (c *collector) readNodes(ctx context.Context) error {
	for _, name := range c.Nodes {
		found, err := c.clients.Core.Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			c.miss("node "+name, "%v", cluster.Explain(err, "get", "nodes", ""))
			continue
		}
		c.nodes = append(c.nodes, node(found))
	}
	if len(c.Nodes) == 0 {
		err := c.reader.Each(ctx, metav1.ListOptions{},
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return c.clients.Core.Nodes().List(ctx, options)
			},
			func(object runtime.Object) { c.nodes = append(c.nodes, node(object.(*corev1.Node))) })
		if err != nil {
			c.nodes = nil
			return cluster.Explain(err, "list", "nodes", "")
		}
	}
	c.nodesAreIn = len(c.nodes) > 0 || len(c.Nodes) == 0
	slices.SortFunc(c.nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return addObjects(&c.contents, "nodes.yaml", "nodes", c.nodes)
}

// readPods reads the pods that have devices or wait for some.
func (c *collector) readPods(ctx context.Context) error {
	selectors := []fields.Selector{fields.Everything()}
	if len(c.Nodes) > 0 {
		selectors = nil
		for _, name := range append([]string{""}, c.Nodes...) {
			selectors = append(selectors, fields.OneTermEqualSelector("spec.nodeName", name))
		}
	}
	for _, selector := range selectors {
		err := c.reader.Each(ctx, metav1.ListOptions{FieldSelector: selector.String()},
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return c.clients.Core.Pods(metav1.NamespaceAll).List(ctx, options)
			},
			func(object runtime.Object) {
				p := object.(*corev1.Pod)
				if selector.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName}) && devices.NewPod(p) != nil {
					c.pods = append(c.pods, pod(p))
				}
			})
		if err != nil {
			c.pods = nil
			return cluster.Explain(err, "list", "pods", metav1.NamespaceAll)
		}
	}
	c.podsAreIn = true
	slices.SortFunc(c.pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return addObjects(&c.contents, "pods.yaml", "pods that have devices or wait for some", c.pods)
}

// writeTables writes what kubectl device would print of the same nodes and pods.
func (c *collector) writeTables(context.Context) error {
	for _, table := range []struct {
		name, command string
		possible      bool
		print         func(io.Writer) error
	}{
		{"nodes.txt", "kubectl device nodes -o wide", c.nodesAreIn && c.podsAreIn,
			func(to io.Writer) error { return c.Tables.Nodes(to, c.nodes, c.pods) }},
		{"pods.txt", "kubectl device pods -A -o wide", c.podsAreIn,
			func(to io.Writer) error { return c.Tables.Pods(to, c.pods) }},
		{"top.txt", "kubectl device top -o wide", c.nodesAreIn && c.podsAreIn,
			func(to io.Writer) error { return c.Tables.Top(to, c.nodes, c.pods) }},
	} {
		if !table.possible {
			c.miss(table.name, "it is made of nodes and pods, which could not be read")
			continue
		}
		var text strings.Builder
		if err := table.print(&text); err != nil {
			return fmt.Errorf("%s: %w", table.name, err)
		}
		c.addText(table.name, "what \""+table.command+"\" prints", text.String(), maxTable)
	}
	return nil
}

// readEvents reads the events about the nodes, about the device pods, and those that KubeDevice has
// written, newest first.
func (c *collector) readEvents(ctx context.Context) error {
	type name struct{ namespace, name string }
	nodes, pods := map[string]bool{}, map[name]bool{}
	for _, n := range slices.Concat(c.Nodes, nodeNames(c.nodes)) {
		nodes[n] = true
	}
	for _, p := range c.pods {
		pods[name{p.Namespace, p.Name}] = true
	}
	if len(c.Nodes) == 0 && !c.nodesAreIn {
		c.miss("events about nodes", "the nodes could not be read")
	}
	if !c.podsAreIn {
		c.miss("events about pods", "only those that KubeDevice has written are there: the pods could not be read")
	}
	meant := func(e *corev1.Event) bool {
		switch about := e.InvolvedObject; {
		case cluster.LastSeen(e).Before(c.eventsAfter):
			return false
		case about.Kind == "Node" && nodes[about.Name], about.Kind == "Pod" && pods[name{about.Namespace, about.Name}]:
			return true
		default: // such as about a pod that is gone
			return isOwnEvent(e) && (len(c.Nodes) == 0 || e.Source.Host == "" || nodes[e.Source.Host])
		}
	}
	var events []*corev1.Event
	err := c.reader.Each(ctx, metav1.ListOptions{},
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return c.clients.Core.Events(metav1.NamespaceAll).List(ctx, options)
		},
		func(object runtime.Object) {
			if e := object.(*corev1.Event); meant(e) {
				events = append(events, event(e))
			}
		})
	if err != nil {
		return cluster.Explain(err, "list", "events", metav1.NamespaceAll)
	}
	slices.SortStableFunc(events, func(a, b *corev1.Event) int {
		return cluster.LastSeen(b).Compare(cluster.LastSeen(a))
	})
	return addObjects(&c.contents, "events.yaml", "events, newest first", events)
}

// isOwnEvent reports whether KubeDevice has written an event. Its scheduler writes in the name by
// which pods name it; what it writes as default-scheduler is known by the pod alone.
func isOwnEvent(e *corev1.Event) bool {
	for _, writer := range []string{e.Source.Component, e.ReportingController} {
		if writer == "kubecri" || writer == "kubedevice-scheduler" {
			return true
		}
	}
	return false
}

func nodeNames(nodes []*corev1.Node) []string {
	list := make([]string, len(nodes))
	for i, node := range nodes {
		list[i] = node.Name
	}
	return list
}

// readPolicies reads the admission policies and their bindings whose names are KubeDevice's.
func (c *collector) readPolicies(ctx context.Context) error {
	admission := c.clients.Admission
	var all []any
	for _, resource := range []struct {
		name string
		list func(context.Context, metav1.ListOptions) (runtime.Object, error)
	}{
		{"validatingadmissionpolicies", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return admission.ValidatingAdmissionPolicies().List(ctx, o)
		}},
		{"validatingadmissionpolicybindings", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return admission.ValidatingAdmissionPolicyBindings().List(ctx, o)
		}},
		{"mutatingadmissionpolicies", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return admission.MutatingAdmissionPolicies().List(ctx, o)
		}},
		{"mutatingadmissionpolicybindings", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return admission.MutatingAdmissionPolicyBindings().List(ctx, o)
		}},
	} {
		var found []any
		err := c.reader.Each(ctx, metav1.ListOptions{}, resource.list, func(object runtime.Object) {
			if named, ok := object.(metav1.Object); ok && strings.HasPrefix(named.GetName(), "kubedevice") {
				found = append(found, policy(object))
			}
		})
		switch {
		case apierrors.IsNotFound(err):
			c.miss(resource.name, "the API server does not serve them in version v1")
		case err != nil:
			c.miss(resource.name, "%v", cluster.Explain(err, "list", resource.name, ""))
		default:
			all = append(all, found...)
		}
	}
	return addObjects(&c.contents, "policies.yaml", "admission policies and bindings named kubedevice*", all)
}

// readLeases reads the leases by which schedulers agree who leads, and those in which they publish
// where they answer.
func (c *collector) readLeases(ctx context.Context) error {
	var leases []*coordinationv1.Lease
	var failed []error
	for _, namespace := range append(slices.Clone(systems), schedulerapi.Namespace) {
		err := c.reader.Each(ctx, metav1.ListOptions{},
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return c.clients.Coordination.Leases(namespace).List(ctx, options)
			},
			func(object runtime.Object) {
				l := object.(*coordinationv1.Lease)
				if namespace == schedulerapi.Namespace || strings.Contains(l.Name, "scheduler") {
					leases = append(leases, lease(l))
				}
			})
		if err != nil {
			failed = append(failed, cluster.Explain(err, "list", "leases", namespace))
		}
	}
	if len(leases) == 0 && len(failed) > 0 {
		return errors.Join(failed...)
	}
	for _, err := range failed {
		c.miss("some of leases.yaml", "%v", err)
	}
	return addObjects(&c.contents, "leases.yaml", "leases of schedulers", leases)
}
