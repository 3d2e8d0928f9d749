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

// KubeletCheckpoint is the file in which the kubelet remembers its device plugins. Its place does not follow the kubelet's --root-dir.
const KubeletCheckpoint = pluginapi.DevicePluginPath + "kubelet_internal_checkpoint"

const (
	// servedInterval is the pause between two looks at what the kubelet serves.
	servedInterval = 10 * time.Second
	// servedLimit is how long one look may take.
	servedLimit = 2 * time.Second
)

// FromKubelet returns a KubeletResources that asks the kubelet itself.
//
// At the socket of its PodResources API the kubelet tells which devices it would give to pods: what its plugins tell it at this
// moment. In its checkpoint stand all resources that it knows, those of plugins that have left within the last five minutes
// among them. A kubelet that does not answer serves nobody, and a checkpoint that is not there has nothing.
func FromKubelet(socket, checkpoint string) KubeletResources {
	return func(ctx context.Context) (map[types.ResourceName]string, error) {
		served, err := remembered(checkpoint)
		if err != nil {
			return nil, err
		}
		devices, err := allocatable(ctx, socket)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("The kubelet does not tell its devices", "reason", err.Error())
		}
		for _, d := range devices {
			for _, id := range d.GetDeviceIds() {
				served[types.ResourceName(d.GetResourceName())] = id
			}
		}
		return served, nil
	}
}

// allocatable returns the devices that the kubelet would give to pods.
func allocatable(ctx context.Context, socket string) ([]*podresourcesapi.ContainerDevices, error) {
	if _, err := os.Lstat(socket); err != nil {
		return nil, err
	}
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, servedLimit)
	defer cancel()
	response, err := podresourcesapi.NewPodResourcesListerClient(conn).GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
	if err != nil {
		return nil, reason(err)
	}
	return response.GetDevices(), nil
}

// remembered returns the resources in the kubelet's checkpoint, without IDs.
func remembered(checkpoint string) (map[types.ResourceName]string, error) {
	raw, err := os.ReadFile(checkpoint)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the kubelet's checkpoint: %w", err)
	}
	known := map[types.ResourceName]string{}
	if err != nil {
		return known, nil
	}
	var content struct {
		Data struct{ RegisteredDevices map[types.ResourceName]any }
	}
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("the kubelet's checkpoint: %s: %w", checkpoint, err)
	}
	for resource := range content.Data.RegisteredDevices {
		known[resource] = ""
	}
	return known, nil
}

// rival says that the kubelet is in the way of a resource.
type rival struct {
	resource types.ResourceName
	id       string // of a device that it would give to pods; empty if its plugin has left
}

func (r *rival) Error() string {
	if r.id == "" {
		return fmt.Sprintf("the kubelet still remembers a device plugin of %s, for five minutes after that has left, and would fail pods that ask for it: "+
			"it is offered when the kubelet has forgotten", r.resource)
	}
	return fmt.Sprintf("resource %s is registered with the kubelet, too, which has its device %s: "+
		"stop the plugin that uses the kubelet's folder, or leave the resource to it", r.resource, r.id)
}

// rivalOf returns how the kubelet is in the way of the resource, or nil.
func rivalOf(resource types.ResourceName, served map[types.ResourceName]string) *rival {
	id, known := served[resource]
	if !known {
		return nil
	}
	return &rival{resource, id}
}

// lookForRival returns how the kubelet is in the way of the resource at this moment. What cannot be told is not.
func (m *Manager) lookForRival(ctx context.Context, resource types.ResourceName) *rival {
	served, err := m.options.KubeletResources(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Whether the kubelet serves a resource, too, is not known", "resource", resource)
	}
	return rivalOf(resource, served)
}

// watchKubelet notices when the kubelet begins to serve a resource that is served here, and when that is over.
func (m *Manager) watchKubelet(ctx context.Context) {
	for {
		sleep(ctx, servedInterval)
		if ctx.Err() != nil {
			return
		}
		// What cannot be told stays as it is.
		if served, err := m.options.KubeletResources(ctx); err == nil {
			m.noteServed(ctx, served)
		}
	}
}

// noteServed notes what the kubelet serves.
func (m *Manager) noteServed(ctx context.Context, served map[types.ResourceName]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.resources {
		now := rivalOf(name, served)
		if now != nil && now.id != "" && r.session == nil && r.listed {
			// The plugin has moved to the kubelet.
			if r.expiry != nil {
				r.expiry.Stop()
			}
			m.forget(r)
		}
		if (now == nil) != (r.rival == nil) || now != nil && *now != *r.rival {
			klog.FromContext(ctx).Info("The kubelet has begun or ceased to be in the way of a resource", "resource", name, "inTheWay", now != nil)
			r.rival = now
			m.touch(r)
		}
	}
}
