// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
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

// FirewallAction is what the firewall did about an attempt.
type FirewallAction string

// The actions.
const (
	AttemptNeutralised FirewallAction = "neutralised"
	AttemptRefused     FirewallAction = "refused"
	AttemptAllowed     FirewallAction = "allowed" // by the list of pods that are let through
)

// errNoAccount is why a container waits of whose pod only the name is known.
var errNoAccount = errors.New("its service account is not known to this node yet, on which it depends whether the " +
	"device firewall lets it through")

// guard refuses a container that asks for devices past the scheduler in a way that cannot be
// undone, and records in r what has to be done about the others.
//
// It leaves alone what does not come from the API server, such as static pods: whoever writes
// those is root on the node; privileged containers, which see all devices of the node in any case;
// and containers with devices that the kubelet gave them before.
func (a *Admission) guard(ctx context.Context, r *request) error {
	if err := refuseForeign(r); err != nil {
		return err
	}
	if a.Firewall == nil || !r.fromAPI || r.asBefore || r.config.GetLinux().GetSecurityContext().GetPrivileged() {
		return nil
	}
	guard, err := a.guardOf(ctx, nil)
	if err != nil || !guard.Active() {
		return err
	}
	allowed, err := a.isAllowed(ctx, r.podRef, r.spec)
	if err != nil {
		return err
	}
	refused := guard.Refused(r.asFirewall())
	if allowed {
		_, ended := guard.Neutralise(r.asFirewall(), nil, false)
		a.observe(append(refused, ended...), AttemptAllowed)
		return nil
	}
	if len(refused) > 0 {
		a.observe(refused, AttemptRefused)
		return never(errAttempts(r.container, refused))
	}
	r.firewall = guard
	return nil
}

// guardRestore refuses to restore a pod where the firewall guards devices.
func (a *Admission) guardRestore(ctx context.Context, pod podRef, spec pods.Pod) error {
	if a.Firewall == nil || !pod.fromAPI {
		return nil
	}
	guard, err := a.guardOf(ctx, nil)
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
	return never(fmt.Errorf("a pod cannot be restored on a node with devices (%s): a checkpoint may bring devices "+
		"that the pod was not allocated; create it anew, restore it on a node without devices, or let its service "+
		"account through with --device-firewall-allow", guard.Vendors()))
}

// neutralise adds the environment variables that keep the container from devices that it was not
// allocated. holds are those that it was.
func (a *Admission) neutralise(
	ctx context.Context, r *request, holds types.ResourceLocation, delta *runtimeapi.ContainerConfig,
) error {
	if r.firewall == nil {
		return nil
	}
	guard := r.firewall
	if len(holds) > 0 {
		// What it holds makes a difference to some rules of plugins.
		var err error
		if guard, err = a.guardOf(ctx, holds); err != nil {
			return err
		}
	}
	set, ended := guard.Neutralise(r.asFirewall(), delta.GetEnvs(), len(holds) > 0)
	delta.Envs = append(delta.Envs, set...)
	if len(ended) > 0 {
		a.observe(ended, AttemptNeutralised)
		a.WarnIgnored(r.object(), short(fmt.Sprintf("container %q: %s asks the container runtime for devices, and is "+
			"not obeyed: a container gets the devices that it was allocated. Request devices in its limits, or have "+
			"the pod's service account added to --device-firewall-allow on the node", r.container, list(ended))))
	}
	return nil
}

// guardOf returns what the firewall does for a container that holds the devices.
func (a *Admission) guardOf(ctx context.Context, holds types.ResourceLocation) (*firewall.Guard, error) {
	ctx, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	resources, _ := a.Pods.DeviceResources()
	guard, err := a.Firewall.Guard(ctx, resources, holds)
	if err != nil {
		return nil, quietly(fmt.Errorf("how to keep the container from devices is not known: %w", err))
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
		return false, quietly(fmt.Errorf("%w: %w", errNoAccount, err))
	}
	if allowed, decided = a.Allowlist.Allows(pod.namespace, spec.ServiceAccount); !decided {
		return false, quietly(errNoAccount)
	}
	return allowed, nil
}

func (a *Admission) observe(attempts []firewall.Attempt, action FirewallAction) {
	if a.ObserveFirewall == nil {
		return
	}
	for _, attempt := range attempts {
		a.ObserveFirewall(attempt, action)
	}
}

// asFirewall returns the container for the firewall.
func (r *request) asFirewall() firewall.Container {
	c := firewall.Container{
		PodAnnotations: r.annotations, Config: r.config, Requests: r.spec.Requests[r.container],
	}
	if r.withImage {
		c.Own = func(variable string) bool { return r.spec.SetsVariable(r.container, variable) }
	}
	return c
}

func errAttempts(container string, attempts []firewall.Attempt) error {
	return fmt.Errorf("container %q: %s asks for devices that the container was not allocated; remove it and request "+
		"devices in the container's limits, or have the pod's service account added to --device-firewall-allow on the "+
		"node", container, list(attempts))
}

func list(attempts []firewall.Attempt) string {
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
			return never(fmt.Errorf("container %q comes from the kubelet with the annotation %s, which only "+
				"kubecri writes: a device plugin that is registered with the kubelet has set it; remove that plugin",
				r.container, key))
		}
	}
	return nil
}
