// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstall gives all nodes back that agents have enrolled, before anything else of
// KubeDevice goes. It says which pods are in the way, and changes nothing while there are any.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/agent"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
)

const (
	// poll is how often the nodes are looked at.
	poll = 500 * time.Millisecond
	// orderLimit is how long an order holds that is not renewed.
	orderLimit = time.Minute
	// lastLimit is how long the last order holds: what runs on the nodes goes meanwhile.
	lastLimit = 10 * time.Minute
	// namedPods is how many pods a message names.
	namedPods = 20
)

// schedulerName is that which KubeDevice's scheduler alone serves.
const schedulerName = "kubedevice-scheduler"

// Options configure Run. All fields are required, unless they say otherwise.
type Options struct {
	Client kubernetes.Interface
	// Namespace has the lease, the Secret and the ConfigMap.
	Namespace string
	// Drain evicts pods with devices; otherwise they are in the way.
	Drain bool
	// SchedulerGoes says that pods which wait for KubeDevice's scheduler would wait for ever.
	SchedulerGoes bool
	// Timeout is how long the nodes may take.
	Timeout time.Duration
	// Secret and ConfigMap are deleted in the end; empty means none.
	Secret, ConfigMap string
	// Progress is called with a line for what is done and for what is waited for.
	Progress func(line string)
}

// Run gives all nodes back. If it fails, agents take those nodes over again that have left.
func Run(ctx context.Context, o Options) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	if err := o.giveBack(ctx); err != nil {
		if failed := agent.Order(context.WithoutCancel(ctx), o.Client, o.Namespace, false, 0); failed != nil {
			err = errors.Join(err, failed)
		}
		return err
	}
	return o.deleteKeys(ctx)
}

// check returns an error that names the pods which are in the way.
func (o *Options) check(ctx context.Context) error {
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	pods, err := o.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var hold, wait []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		name := pod.Namespace + "/" + pod.Name
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		_, err := deviceinfo.PodAllocation(pod)
		switch {
		case err == nil && slices.Contains(nodes, pod.Spec.NodeName):
			hold = append(hold, fmt.Sprintf("%s (on %s)", name, pod.Spec.NodeName))
		case pod.Spec.NodeName == "" && pod.Spec.SchedulerName == schedulerName && o.SchedulerGoes:
			wait = append(wait, name)
		}
	}
	if o.Drain {
		if len(wait) > 0 {
			o.progress("pods wait for the scheduler %s, and will wait until they are deleted: %s", schedulerName,
				list(wait))
		}
		return nil
	}
	var found []error
	if len(hold) > 0 {
		found = append(found, fmt.Errorf("%d pods hold devices: %s; a container of theirs that is created anew would "+
			"have no device: let them end, delete them, or have them evicted (helm rollback to the last revision of "+
			"helm history, helm upgrade --reuse-values --set uninstall.drain=true, and uninstall again)", len(hold),
			list(hold)))
	}
	if len(wait) > 0 {
		found = append(found, fmt.Errorf("%d pods wait for the scheduler %s, which no other serves: %s; delete them",
			len(wait), schedulerName, list(wait)))
	}
	if len(found) > 0 {
		return fmt.Errorf("nothing was uninstalled: %w", errors.Join(found...))
	}
	return nil
}

// nodes returns the names of the nodes that agents have enrolled.
func (o *Options) nodes(ctx context.Context) ([]string, error) {
	found, err := o.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: enrolment.GroupLabel})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var names []string
	for _, node := range found.Items {
		names = append(names, node.Name)
	}
	return names, nil
}

// giveBack orders all agents to give their nodes back, and waits until they have.
func (o *Options) giveBack(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var ordered time.Time
	var said string
	for {
		if time.Since(ordered) > orderLimit/4 {
			if err := agent.Order(ctx, o.Client, o.Namespace, o.Drain, orderLimit); apierrors.IsConflict(err) {
				continue
			} else if err != nil {
				return err
			}
			ordered = time.Now()
		}
		nodes, err := o.nodes(limited)
		if err == nil && len(nodes) == 0 {
			o.progress("all nodes are given back")
			return agent.Order(ctx, o.Client, o.Namespace, o.Drain, lastLimit)
		}
		if now := list(nodes); err == nil && now != said {
			said = now
			o.progress("nodes are being given back: %s", now)
		}
		select {
		case <-time.After(poll):
		case <-limited.Done():
			return fmt.Errorf("nothing was uninstalled: after %v nodes are not given back: %s: see why with kubectl "+
				"-n %s logs -l app.kubernetes.io/component=node --prefix", o.Timeout, said, o.Namespace)
		}
	}
}

// deleteKeys deletes the keys. No node needs them any more, and the scheduler that still runs has
// read them.
func (o *Options) deleteKeys(ctx context.Context) error {
	var err error
	if o.Secret != "" {
		err = ignoreNotFound(o.Client.CoreV1().Secrets(o.Namespace).Delete(ctx, o.Secret, metav1.DeleteOptions{}))
	}
	if o.ConfigMap != "" {
		err = errors.Join(err, ignoreNotFound(
			o.Client.CoreV1().ConfigMaps(o.Namespace).Delete(ctx, o.ConfigMap, metav1.DeleteOptions{})))
	}
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (o *Options) progress(format string, args ...any) { o.Progress(fmt.Sprintf(format, args...)) }

// list names a number of things, the first ones if there are many.
func list(names []string) string {
	slices.Sort(names)
	if more := len(names) - namedPods; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedPods], ", "), more)
	}
	return strings.Join(names, ", ")
}
