// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// errNoAccount is why a container waits of whose pod only the name is known.
var errNoAccount = errors.New("its service account is not known to this node yet, on which it depends whether the " +
	"device firewall lets it through")

// guard refuses a container that requests devices without the scheduler in a way that cannot be
// undone, and records in r what has to be done about the others.
//
// It leaves alone what does not come from the API server, such as static pods: whoever writes
// those is root on the node; and privileged containers, which see all devices of the node in any
// case.
func (a *Admission) guard(ctx context.Context, r *request) error {
	if err := refuseForeign(r); err != nil {
		return err
	}
	if a.Firewall == nil || !r.fromAPI || r.config.GetLinux().GetSecurityContext().GetPrivileged() {
		return nil
	}
	guard, err := a.guardOf(ctx)
	if err != nil || !guard.Active() {
		return err
	}
	allowed, err := a.isAllowed(ctx, r.podRef, r.spec)
	if err != nil {
		return err
	}
	c, err := a.firewallContainer(r, guard)
	if err != nil {
		return err
	}
	if r.sandboxID != "" {
		if c.SandboxAnnotations, err = a.Sandboxes.Annotations(ctx, r.sandboxID); err != nil {
			return unavailableWithoutEvent(fmt.Errorf("which annotations the sandbox of container %q has is not "+
				"known: %w", r.container,
				err))
		}
	}
	refused := guard.Refused(c)
	if allowed {
		o := guard.Neutralise(c, nil, false)
		a.observe(slices.Concat(refused, o.Refused, o.Ended), AttemptAllowed)
		return nil
	}
	if len(refused) > 0 {
		a.observe(refused, AttemptRefused)
		return failedPrecondition(errAttempts(r.container, refused))
	}
	r.firewall = guard
	r.guarded = c
	return nil
}

// guardRestore refuses to restore a pod where the firewall guards devices.
func (a *Admission) guardRestore(ctx context.Context, pod podRef, spec pods.Pod) error {
	if a.Firewall == nil || !pod.fromAPI {
		return nil
	}
	guard, err := a.guardOf(ctx)
	if err != nil || !guard.Active() {
		return err
	}
	allowed, err := a.isAllowed(ctx, pod, spec)
	if err != nil {
		return err
	}
	attempts := []firewall.Attempt{guard.Restored()}
	if allowed {
		a.observe(attempts, AttemptAllowed)
		return nil
	}
	a.observe(attempts, AttemptRefused)
	return failedPrecondition(fmt.Errorf("a pod cannot be restored on a node with devices (%s): a checkpoint may "+
		"bring devices that the pod was not allocated; create it again, restore it on a node without devices, or let "+
		"its service account through with --device-firewall-allow", guard.Vendors()))
}

// neutralise adds the environment variables that keep the container from devices that it was not
// allocated, or refuses it where none do. holds are those that it was. It has the variables of its
// devices win over the container's.
func (a *Admission) neutralise(
	ctx context.Context, r *request, holds types.ResourceLocation, delta *runtimeapi.ContainerConfig,
) error {
	lost := lostVariables(r, delta.GetEnvs())
	if r.firewall == nil {
		return a.setLast(r, lost, delta)
	}
	guard, c, allocated := r.firewall, r.guarded, len(holds) > 0
	if allocated {
		// What it holds makes a difference to some rules of plugins.
		var err error
		if guard, err = inTime(ctx, func(ctx context.Context) (*firewall.Guard, error) {
			return guard.Holding(ctx, holds)
		}); err != nil {
			return err
		}
	}
	if !c.Adjusted && guard.NeedsImage(c, allocated) {
		image, err := a.Images.Image(ctx, r.config.GetImage())
		if err != nil {
			return unavailableWithoutEvent(fmt.Errorf("the variables of the image of container %q, which the "+
				"container runtime of a device vendor obeys, are not known: %w", r.container, err))
		}
		if image.LeftOut {
			return failedPrecondition(fmt.Errorf("container %q: its image sets variables of %d bytes and volumes of "+
				"%d, more than are read, and the container runtime of a device vendor on this node may obey one of "+
				"them; set fewer in the image, or have the pod's service account added to --device-firewall-allow on "+
				"the node", r.container, image.Sets.Variables, image.Sets.Mounts))
		}
		c.Image, c.ImageVolumes = image.Variables, image.Volumes
		if refused := guard.RefusedVolumes(c); len(refused) > 0 {
			a.observe(refused, AttemptRefused)
			return failedPrecondition(errAttempts(r.container, refused))
		}
	}
	o := guard.Neutralise(c, delta.GetEnvs(), allocated)
	if len(o.Refused) > 0 {
		a.observe(o.Refused, AttemptRefused)
		return failedPrecondition(errVariables(r.container, o.Refused))
	}
	delta.Envs = append(delta.Envs, o.Set...)
	// A name that is in both has the firewall's value.
	lost = slices.DeleteFunc(lost, func(env *runtimeapi.KeyValue) bool {
		return slices.ContainsFunc(o.Last, func(l *runtimeapi.KeyValue) bool { return l.GetKey() == env.GetKey() })
	})
	if err := a.setLast(r, slices.Concat(o.Last, lost), delta); err != nil {
		return err
	}
	if len(o.Ended) > 0 {
		a.observe(o.Ended, AttemptNeutralised)
		a.Events.WarnIgnored(r.object(), clip(fmt.Sprintf("container %q: %s requests devices from the container "+
			"runtime, and is not obeyed: a container gets the devices that it was allocated. Request devices in its "+
			"limits, or have the pod's service account added to --device-firewall-allow on the node", r.container,
			joinAttempts(o.Ended))))
	}
	return nil
}

// lostVariables returns those of added that the container has twice, with another value the second
// time: NRI replaces the first of a name, and the second counts.
func lostVariables(r *request, added []*runtimeapi.KeyValue) (lost []*runtimeapi.KeyValue) {
	if !r.withImage {
		return nil // what is added comes last
	}
	counts, last := map[string]int{}, map[string][]byte{}
	for _, env := range r.config.GetEnvs() {
		counts[env.GetKey()]++
		last[env.GetKey()] = env.GetValue()
	}
	for _, env := range added {
		if name := env.GetKey(); counts[name] > 1 && !bytes.Equal(last[name], env.GetValue()) {
			lost = append(lost, env)
		}
	}
	return lost
}

// setLast has variables set when all others are, by a CDI device.
func (a *Admission) setLast(r *request, last []*runtimeapi.KeyValue, delta *runtimeapi.ContainerConfig) error {
	if len(last) == 0 {
		return nil
	}
	var variables []string
	for _, env := range last {
		variables = append(variables, env.GetKey()+"="+string(env.GetValue()))
	}
	name, err := a.Variables.Device(variables)
	if err != nil {
		return failedPrecondition(fmt.Errorf("container %q: the environment variable %s stands twice, in its image or "+
			"in image and pod, and cannot be overridden: %w", r.container, last[0].GetKey(), err))
	}
	delta.CDIDevices = append(delta.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	return nil
}

// guardOf returns what the firewall does for a container that holds no devices.
func (a *Admission) guardOf(ctx context.Context) (*firewall.Guard, error) {
	return inTime(ctx, func(ctx context.Context) (*firewall.Guard, error) {
		resources, _ := a.Pods.DeviceResources()
		return a.Firewall.Guard(ctx, resources)
	})
}

// inTime returns what get does, which waits for device plugins, before the kubelet has to wait.
func inTime(
	ctx context.Context, get func(context.Context) (*firewall.Guard, error),
) (*firewall.Guard, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	guard, err := get(ctx)
	if err != nil {
		return nil, unavailableWithoutEvent(fmt.Errorf("how to keep the container from devices is not known: %w", err))
	}
	return guard, nil
}

// isAllowed reports whether the firewall lets the pod through. spec is what is known of it.
func (a *Admission) isAllowed(ctx context.Context, pod podRef, spec pods.Pod) (bool, error) {
	allowed, decided := a.Allowlist.Allows(pod.namespace, spec.ServiceAccount)
	if decided {
		return allowed, nil
	}
	// The pod was granted devices before a restart, or is known from the file of an earlier
	// release.
	spec, err := a.Pods.Lookup(ctx, pod.uid)
	if err != nil {
		return false, unavailableWithoutEvent(fmt.Errorf("%w: %w", errNoAccount, err))
	}
	if allowed, decided = a.Allowlist.Allows(pod.namespace, spec.ServiceAccount); !decided {
		return false, unavailableWithoutEvent(errNoAccount)
	}
	return allowed, nil
}

func (a *Admission) observe(attempts []firewall.Attempt, action FirewallAction) {
	for _, attempt := range attempts {
		a.Metrics.ObserveFirewall(attempt, action)
	}
}

// firewallContainer returns the container for the firewall, with what is known of where its parts
// are from.
func (a *Admission) firewallContainer(r *request, guard *firewall.Guard) (firewall.Container, error) {
	c := firewall.Container{
		PodAnnotations: r.annotations, Config: r.config, Adjusted: r.withImage, Created: r.created,
	}
	if r.withImage {
		c.Own = r.spec.VariablesOf(r.container)
	}
	managed, _ := a.Pods.DeviceResources()
	isOther := func(requested types.ResourceName) bool { return !managed[requested] }
	if r.keepsKubelets || slices.ContainsFunc(r.spec.Requests[r.container], isOther) {
		injections, err := a.Kubelet.Injections(r.uid, r.container)
		if err != nil {
			return c,
				unavailableWithoutEvent(fmt.Errorf("what the kubelet's device plugins gave container %q is not known: "+
					"%w",
					r.container, err))
		}
		c.Kubelet = slices.DeleteFunc(injections, func(injection firewall.KubeletInjection) bool {
			return managed[injection.Resource] && !r.keepsKubelets
		})
	}
	if guard.NeedsClaims(c) {
		var err error
		if c.Claimed, err = a.Kubelet.Claims(r.uid); err != nil {
			return c,
				unavailableWithoutEvent(fmt.Errorf("which driver has prepared the CDI devices of container %q is not "+
					"known: %w",
					r.container, err))
		}
	}
	return c, nil
}

func errVariables(container string, attempts []firewall.Attempt) error {
	return fmt.Errorf("container %q: %s decides which devices the container runtime gives it, and cannot be "+
		"overridden; remove it from pod and image, or have the pod's service account added to "+
		"--device-firewall-allow on the node", container, joinAttempts(attempts))
}

func errAttempts(container string, attempts []firewall.Attempt) error {
	return fmt.Errorf("container %q: %s requests devices that the container was not allocated; remove it and request "+
		"devices in the container's limits, or have the pod's service account added to --device-firewall-allow on the "+
		"node", container, joinAttempts(attempts))
}

func joinAttempts(attempts []firewall.Attempt) string {
	var texts []string
	for _, attempt := range attempts {
		texts = append(texts, attempt.Text)
	}
	return strings.Join(texts, ", ")
}

// refuseForeign refuses a container that comes with an annotation which only this program writes: a
// device plugin of the kubelet's may have given it one, and it would be read back as a grant.
func refuseForeign(r *request) error {
	for _, key := range slices.Sorted(maps.Keys(r.config.GetAnnotations())) {
		if strings.HasPrefix(strings.ToLower(key), inject.OwnAnnotations) {
			return failedPrecondition(fmt.Errorf("container %q comes from the kubelet with the annotation %s, which "+
				"only kubecri writes: a device plugin that is registered with the kubelet has set it; remove that "+
				"plugin",
				r.container, key))
		}
	}
	return nil
}
