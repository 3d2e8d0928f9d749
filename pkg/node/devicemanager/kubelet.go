// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// KubeletCheckpoint is the file in which the kubelet remembers its device plugins. It does not
// depend on the kubelet's --root-dir.
const KubeletCheckpoint = pluginapi.DevicePluginPath + "kubelet_internal_checkpoint"

const (
	kubeletInterval = 10 * time.Second // between two checks of what the kubelet serves
	kubeletLimit    = 2 * time.Second  // for one of them
)

// KubeletResources returns the extended resources that the kubelet knows, each with the ID of a
// device that the kubelet would allocate, or with "" for the resource of a plugin that has left. An
// error says that they are unknown. It is called at each registration and periodically.
type KubeletResources func(ctx context.Context) (map[types.ResourceName]string, error)

// FromKubelet returns the KubeletResources of the kubelet itself.
//
// At the socket of its PodResources API the kubelet reports the devices that it would allocate now.
// Its checkpoint has all resources that it knows, also those of plugins that have left within the
// last five minutes. A kubelet that does not answer serves nothing; without a checkpoint it knows
// nothing.
func FromKubelet(socket, checkpoint string) KubeletResources {
	return func(ctx context.Context) (map[types.ResourceName]string, error) {
		known, err := readCheckpoint(checkpoint)
		if err != nil {
			return nil, fmt.Errorf("the kubelet's checkpoint: %w", err)
		}
		devices, err := allocatable(ctx, socket)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("The kubelet does not report its devices", "reason", err.Error())
		}
		for _, d := range devices {
			for _, id := range d.GetDeviceIds() {
				known[types.ResourceName(d.GetResourceName())] = id
			}
		}
		return known, nil
	}
}

// allocatable returns the devices that the kubelet would allocate.
func allocatable(ctx context.Context, socket string) ([]*podresourcesapi.ContainerDevices, error) {
	if _, err := os.Lstat(socket); err != nil {
		return nil, err
	}
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, kubeletLimit)
	defer cancel()
	client := podresourcesapi.NewPodResourcesListerClient(conn)
	response, err := client.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
	if err != nil {
		return nil, reason(err)
	}
	return response.GetDevices(), nil
}

// readCheckpoint returns the resources in the kubelet's checkpoint, without IDs.
func readCheckpoint(path string) (map[types.ResourceName]string, error) {
	known := map[types.ResourceName]string{}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	var content struct {
		Data struct{ RegisteredDevices map[types.ResourceName]any }
	}
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for resource := range content.Data.RegisteredDevices {
		known[resource] = ""
	}
	return known, nil
}

// conflict is a resource that is registered with the kubelet, too.
type conflict struct {
	resource types.ResourceName
	id       string // of a device that the kubelet would allocate; empty if its plugin has left
}

func (c *conflict) Error() string {
	if c.id == "" {
		return fmt.Sprintf("the kubelet still remembers a device plugin of %s, for five minutes after that has left, "+
			"and would fail pods that ask for it: it is offered when the kubelet has forgotten", c.resource)
	}
	return fmt.Sprintf("resource %s is registered with the kubelet, too, which has its device %s: "+
		"stop the plugin that uses the kubelet's directory, or leave the resource to it", c.resource, c.id)
}

// conflictOf returns the conflict of a resource, or nil.
func conflictOf(resource types.ResourceName, known map[types.ResourceName]string) *conflict {
	id, conflicts := known[resource]
	if !conflicts {
		return nil
	}
	return &conflict{resource, id}
}

// findConflict returns the conflict of a resource now. What is unknown is none.
func (m *Manager) findConflict(ctx context.Context, resource types.ResourceName) *conflict {
	known, err := m.options.KubeletResources(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Whether the kubelet serves a resource is unknown", "resource", resource)
	}
	return conflictOf(resource, known)
}

// watchKubelet notices when the kubelet begins to serve a resource that is served here, and when it
// stops, until ctx is done.
func (m *Manager) watchKubelet(ctx context.Context) {
	for {
		sleep(ctx, kubeletInterval)
		if ctx.Err() != nil {
			return
		}
		// What is unknown stays as it is.
		if known, err := m.options.KubeletResources(ctx); err == nil {
			m.updateConflicts(ctx, known)
		}
	}
}

// updateConflicts records what the kubelet knows.
func (m *Manager) updateConflicts(ctx context.Context, known map[types.ResourceName]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.resources {
		now := conflictOf(name, known)
		if now != nil && now.id != "" && r.session == nil && r.listed {
			r.stopExpiry()
			m.forget(r) // the plugin has moved to the kubelet
		}
		if (now == nil) != (r.conflict == nil) || now != nil && *now != *r.conflict {
			klog.FromContext(ctx).Info("The kubelet has begun or stopped to conflict over a resource",
				"resource", name, "conflict", now != nil)
			r.conflict = now
			m.touch(r)
		}
	}
}
