// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"os"
	"time"

	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	kubeletInterval = 10 * time.Second // between two checks of what the kubelet serves
	kubeletTimeout  = 2 * time.Second  // for one of them
	// RivalInterval is for how long the kubelet must not have had a plugin's devices before its
	// resource is taken over: a plugin needs some seconds to register again with a kubelet that
	// restarts.
	RivalInterval = time.Minute
)

// FromKubelet returns the KubeletResources of the kubelet itself.
//
// At the socket of its PodResources API the kubelet reports the devices that it would allocate now,
// and those that pods hold. Its checkpoint has all resources that it knows, also those of plugins
// that have left within the last five minutes. Of a kubelet that does not answer, the checkpoint
// says what pods hold, and it serves nothing; without a checkpoint it knows nothing. The devices by
// which kubecri has the kubelet count a resource are known, and none of the kubelet's.
//
// As long as the kubelet takes a device for held, it takes the resource for its own, and fails each
// pod that requests it where no plugin serves it. It looks for pods that are gone when it next
// allocates a device, which fails, and when somebody lists what pods hold: so that is done first.
func FromKubelet(socket, checkpoint string) KubeletResources {
	return kubeletReader{socket: socket, checkpoint: checkpoint}
}

// kubeletReader reads the resources of the node's kubelet.
type kubeletReader struct{ socket, checkpoint string }

// Resources implements KubeletResources.
func (k kubeletReader) Resources(ctx context.Context) (map[types.ResourceName]KubeletHolding, error) {
	state, err := kubeletstate.Read(k.checkpoint)
	if err != nil {
		return nil, err
	}
	known := map[types.ResourceName]KubeletHolding{}
	for _, resource := range state.Resources {
		known[resource] = KubeletHolding{}
	}
	if listed, err := readDevices(ctx, k.socket, state, known); err != nil {
		klog.FromContext(ctx).V(4).Info("The kubelet does not report its devices", logkey.Reason, err.Error())
		if !listed {
			addHoldings(state, known)
		}
	}
	return known, nil
}

// addHoldings adds to known what pods hold by the kubelet's checkpoint, which may have pods that
// are gone.
func addHoldings(state kubeletstate.State, known map[types.ResourceName]KubeletHolding) {
	for _, holding := range state.Holdings {
		has := known[holding.Resource]
		if !holding.Placeholder {
			has.Pod = first(has.Pod, "with UID "+holding.PodUID)
		}
		known[holding.Resource] = has
	}
}

// readDevices adds to known the devices that pods hold, and those that the kubelet would allocate.
// listed says that the first are complete.
func readDevices(
	ctx context.Context, socket string, state kubeletstate.State, known map[types.ResourceName]KubeletHolding,
) (listed bool, err error) {
	if _, err := os.Lstat(socket); err != nil {
		return false, err
	}
	conn, err := Dial(socket)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	client := podresourcesapi.NewPodResourcesListerClient(conn)
	held, heldErr := client.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
	for _, pod := range held.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, d := range container.GetDevices() {
				resource := types.ResourceName(d.GetResourceName())
				has := known[resource]
				if !state.IsPlaceholder(resource, d.GetDeviceIds()) {
					has.Pod = first(has.Pod, pod.GetNamespace()+"/"+pod.GetName())
				}
				known[resource] = has
			}
		}
	}
	free, freeErr := client.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
	for _, d := range free.GetDevices() {
		for _, id := range d.GetDeviceIds() {
			has := known[types.ResourceName(d.GetResourceName())]
			if kubeletstate.IsPlaceholderID(id) {
				has.Placeholder = true
			} else {
				has.Device = first(has.Device, id)
			}
			known[types.ResourceName(d.GetResourceName())] = has
		}
	}
	if heldErr != nil {
		return false, Reason(heldErr)
	}
	if freeErr != nil {
		return true, Reason(freeErr)
	}
	return true, nil
}

// first returns the first of two texts that are not empty. The kubelet lists pods and devices in
// another order each time.
func first(a, b string) string {
	if a == "" {
		return b
	}
	return min(a, b)
}

// findConflict returns the conflict of a resource now. What is unknown is none.
func (m *Manager) findConflict(ctx context.Context, r *resource) *conflict {
	known, err := m.kubeletResources(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Whether the kubelet serves a resource is unknown", logkey.Resource, r.name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.conflictWith(known)
}

// conflictWith returns the resource's conflict with what the kubelet knows, or nil. The caller
// holds mu.
func (r *resource) conflictWith(known map[types.ResourceName]KubeletHolding) *conflict {
	found := conflictOf(r.name, known)
	if found == nil || r.ownership.isRegistered() || r.ownership.isTaken() && found.Device == "" {
		return nil
	}
	return found
}

// WatchKubelet notices when the kubelet begins to serve a resource that is served here, and when it
// stops, until ctx is done. It calls each after every time that it has looked, and when a plugin
// has listed its devices for the first time. Without it, nothing is known of the kubelet but what a
// plugin's registration finds.
func (m *Manager) WatchKubelet(ctx context.Context, each func(context.Context)) {
	known, err := m.ReadKubelet(ctx)
	close(m.kubeletRead)
	for {
		// What is unknown stays as it is.
		if err == nil {
			m.updateConflicts(ctx, known)
		}
		each(ctx)
		timer := time.NewTimer(kubeletInterval)
		select {
		case <-timer.C:
		case <-m.listed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		known, err = m.ReadKubelet(ctx)
	}
}

// kubeletResources returns what the kubelet has; nothing where no kubelet is known.
func (m *Manager) kubeletResources(ctx context.Context) (map[types.ResourceName]KubeletHolding, error) {
	if m.options.KubeletResources == nil {
		return nil, nil
	}
	return m.options.KubeletResources.Resources(ctx)
}

// ReadKubelet returns what the kubelet has now, and keeps it for Kubelet and KubeletServes. An
// error says that it is unknown.
func (m *Manager) ReadKubelet(ctx context.Context) (map[types.ResourceName]KubeletHolding, error) {
	known, err := m.kubeletResources(ctx)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.kubelet = known
	}
	return known, err
}

// Kubelet returns what the kubelet has, as of some seconds ago, and whether that was tried to be
// read. What could not be read is nothing. The map must not be changed.
func (m *Manager) Kubelet() (known map[types.ResourceName]KubeletHolding, read bool) {
	select {
	case <-m.kubeletRead:
		read = true
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kubelet, read
}

// KubeletServes reports whether the kubelet itself serves a resource that is one of those, as of
// some seconds ago. After the start it waits until that was read once, or ctx is done. What cannot
// be read counts as nothing.
func (m *Manager) KubeletServes(ctx context.Context, is func(types.ResourceName) bool) bool {
	select {
	case <-m.kubeletRead:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.kubelet {
		if r := m.resources[name]; is(name) && (r == nil || !r.ownership.isRegistered()) {
			return true
		}
	}
	return false
}

// updateConflicts records what the kubelet knows.
func (m *Manager) updateConflicts(ctx context.Context, known map[types.ResourceName]KubeletHolding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.resources {
		now := r.conflictWith(known)
		_, remembered := known[name]
		if r.ownership.isTaken() && r.takeover == nil && !remembered || r.ownership.isTaken() && now != nil {
			m.move(r, other)
			m.drop(r)
		}
		if now != nil && now.Device != "" && r.session != nil {
			r.rivalSeen = m.options.Clock.Now()
		}
		if now != nil && now.Device != "" && r.presence == lost {
			r.stopExpiry()
			m.forget(r) // the plugin has moved to the kubelet
		}
		if (now == nil) != (r.conflict == nil) || now != nil && *now != *r.conflict {
			klog.FromContext(ctx).Info("The kubelet has begun or stopped to conflict over a resource",
				logkey.Resource, name, logkey.Conflict, now != nil)
			r.conflict = now
			m.touch(r)
		}
	}
}
