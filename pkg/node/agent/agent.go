// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent keeps a node enrolled for as long as the node has the labels of its group, and
// gives it back when they go, or when all nodes are to be given back. A DaemonSet runs it.
//
// The agent is in a container, and acts there with its service account: it reads the node and two
// leases. Everything on the machine is done there by kubecri's own commands, with the kubelet's
// identity: [Enter] takes them out of the container.
package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

// The keys of the log.
const (
	nodeKey    = "node"
	outcomeKey = "outcome"
)

// retryInterval is how soon something is tried again that did not work, or looked at that nothing
// announces, such as a file.
const retryInterval = 10 * time.Second

// readTimeout is how long the API server may take to answer what a step depends on.
const readTimeout = 10 * time.Second

// Options configure an Agent. All fields are required.
type Options struct {
	// Node is the node's name.
	Node string
	// Selector selects the nodes of the group.
	Selector labels.Selector
	// Group is the group's name, which the node has as enrolment.GroupLabel while it is enrolled.
	Group string
	// Namespace has the leases.
	Namespace string
	// Serial says that one node is enrolled or given back at a time.
	Serial bool
	// Client acts as the agent's service account.
	Client kubernetes.Interface
	// Machine is the node's.
	Machine Machine
}

// Machine is what the agent does on its machine.
type Machine interface {
	// Install puts program, plugins, configuration and certificates on the machine, and reports
	// whether kubecri has to be restarted: until Settle is called, also by another process, if
	// any of the first three was not there as it is.
	Install() (changed bool, err error)
	// Settle says that kubecri runs with what Install has put there.
	Settle() error
	// Enrolled reports whether the machine has an enrolment, perhaps one that is incomplete.
	Enrolled() (bool, error)
	// Enrol and Leave run kubecri's commands of these names.
	Enrol(ctx context.Context) (*enrolment.Report, error)
	Leave(ctx context.Context, drain bool) (*enrolment.Report, error)
	// Serve has kubecri run, and restarts it if renew is set. It returns at once, and does nothing
	// while kubecri runs.
	Serve(ctx context.Context, renew bool) error
	// Ended is closed when the kubecri that Serve has started has ended; it is nil if there is
	// none.
	Ended() <-chan struct{}
	// Clean removes what Install has put on the machine.
	Clean() error
}

// Agent keeps a node enrolled.
type Agent struct {
	Options
	wake     chan struct{} // node or lease may have changed
	enrolled bool          // by this process
	leaving  bool          // what is to go has gone already in part
	wait     wait          // for EnrolmentLease
}

// New returns an agent.
func New(options Options) *Agent { return &Agent{Options: options, wake: make(chan struct{}, 1)} }

// Run keeps the node as it is to be until ctx is done. What is in progress then is finished first.
func (a *Agent) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	stop := a.watch(ctx)
	defer stop()
	// What is done on the machine is not cut off in the middle: it would have to be taken up again.
	whole := context.WithoutCancel(ctx)
	for {
		if err := a.step(whole); err != nil {
			logger.Error(err, "Cannot bring the node into its desired state; will retry", nodeKey, a.Node)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.Machine.Ended():
			logger.Info("Restarting kubecri, which has ended", nodeKey, a.Node)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
			if err := a.keepServing(whole); err != nil {
				logger.Error(err, "kubecri does not run; will retry", nodeKey, a.Node)
			}
		case <-a.wake:
		case <-time.After(retryInterval):
		}
	}
}

// watch has the agent wake up when its node or the lease changes.
func (a *Agent) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	wake := func(any) {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(any, any) { wake(nil) }, DeleteFunc: wake,
	}
	only := func(name string) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		})
	}
	nodes := informers.NewSharedInformerFactoryWithOptions(a.Client, 0, only(a.Node))
	leases := informers.NewSharedInformerFactoryWithOptions(a.Client, 0, only(LeaveLease),
		informers.WithNamespace(a.Namespace))
	for _, informer := range []cache.SharedIndexInformer{
		nodes.Core().V1().Nodes().Informer(), leases.Coordination().V1().Leases().Informer(),
	} {
		// It fails only for an informer that was stopped.
		_, _ = informer.AddEventHandler(handler)
	}
	nodes.Start(ctx.Done())
	leases.Start(ctx.Done())
	return func() {
		cancel()
		nodes.Shutdown()
		leases.Shutdown()
	}
}

// step brings the node nearer to what it is to be.
func (a *Agent) step(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	node, err := a.Client.CoreV1().Nodes().Get(reading, a.Node, metav1.GetOptions{})
	if err != nil {
		return errors.Join(fmt.Errorf("read node %q: %w", a.Node, err), a.keepServing(ctx))
	}
	if other := node.Labels[enrolment.GroupLabel]; other != "" && other != a.Group {
		return fmt.Errorf("node %q is of the group %q and has the labels of group %q, too: take away those of one",
			a.Node, other, a.Group)
	}
	order, err := readOrder(reading, a.Client, a.Namespace)
	if err != nil {
		return errors.Join(err, a.keepServing(ctx))
	}
	if a.Selector.Matches(labels.Set(node.Labels)) && !order.leave {
		return a.enrol(ctx)
	}
	return a.leave(ctx, order.drain)
}

// keepServing has kubecri run on a node that is enrolled, while nothing says whether it is to stay
// so: pods may hold its devices.
func (a *Agent) keepServing(ctx context.Context) error {
	enrolled, err := a.Machine.Enrolled()
	if err != nil || !enrolled || a.leaving {
		return err
	}
	return a.Machine.Serve(ctx, false)
}

// enrol has the node enrolled, and kubecri run.
func (a *Agent) enrol(ctx context.Context) error {
	changed, err := a.Machine.Install()
	if err != nil {
		return fmt.Errorf("put kubecri on node %q: %w", a.Node, err)
	}
	if a.enrolled {
		return a.serve(ctx, changed)
	}
	release, err := a.waitForSlot(ctx)
	if err != nil {
		return err
	}
	defer release()
	// Otherwise the enrolment starts what was installed.
	runs, err := a.Machine.Enrolled()
	if err != nil {
		return err
	}
	report, err := a.Machine.Enrol(ctx)
	if err != nil {
		return err
	}
	if report.Leaving { // a leave was cut off
		if err := a.leaveNow(ctx, false); err != nil {
			return err
		}
		runs = false
		if _, err := a.Machine.Install(); err != nil {
			return err
		}
		if report, err = a.Machine.Enrol(ctx); err != nil {
			return err
		}
	}
	if report.Outcome != enrolment.Done && report.Outcome != enrolment.Unchanged {
		return fmt.Errorf("enrol node %q: %s: %s%s", a.Node, report.Outcome, report.Reason, advice(report))
	}
	if report.Outcome == enrolment.Done {
		klog.FromContext(ctx).Info("The node is enrolled", nodeKey, a.Node)
	}
	if err := a.serve(ctx, changed && runs); err != nil {
		return err
	}
	a.enrolled, a.leaving = true, false
	return nil
}

// serve has kubecri run with what is installed.
func (a *Agent) serve(ctx context.Context, renew bool) error {
	if err := a.Machine.Serve(ctx, renew); err != nil {
		return err
	}
	return a.Machine.Settle()
}

// advice is what the facts that block advise.
func advice(report *enrolment.Report) string {
	text := ""
	for _, fact := range report.Facts {
		if fact.Risk == enrolment.Blocks {
			text += fmt.Sprintf("; %s: %s: %s", fact.Name, fact.Finding, fact.Advice)
		}
	}
	return text
}

// leave gives the node back, if it is enrolled.
func (a *Agent) leave(ctx context.Context, drain bool) error {
	enrolled, err := a.Machine.Enrolled()
	if err != nil {
		return err
	}
	if !enrolled {
		return a.Machine.Clean()
	}
	// The program that leaves may have gone with a leave that was cut off.
	if _, err := a.Machine.Install(); err != nil {
		return fmt.Errorf("put kubecri on node %q: %w", a.Node, err)
	}
	release, err := a.waitForSlot(ctx)
	if err != nil {
		return err
	}
	defer release()
	return a.leaveNow(ctx, drain)
}

// leaveNow gives the node back. While pods keep it, kubecri goes on serving them.
func (a *Agent) leaveNow(ctx context.Context, drain bool) error {
	a.enrolled = false
	report, err := a.Machine.Leave(ctx, drain)
	if err != nil {
		return err
	}
	a.leaving = report.Outcome == enrolment.Stuck
	if report.Outcome == enrolment.Refused {
		if err := a.Machine.Serve(ctx, false); err != nil {
			return err
		}
	}
	if report.Outcome != enrolment.Done && report.Outcome != enrolment.Unchanged {
		return fmt.Errorf("give node %q back: %s: %s", a.Node, report.Outcome, report.Reason)
	}
	klog.FromContext(ctx).Info("The node has left", nodeKey, a.Node, outcomeKey, report.Outcome)
	return a.Machine.Clean()
}
