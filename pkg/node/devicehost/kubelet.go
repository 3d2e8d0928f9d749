// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehost

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// servedInterval is the pause between two looks at what the kubelet serves.
	servedInterval = 10 * time.Second
	// servedLimit is how long one look may take.
	servedLimit = 2 * time.Second
)

// FromKubelet returns a Served that asks the kubelet, at the socket of its PodResources API, which devices it would give to
// pods. That is what its plugins tell it at this moment: a plugin that has left the kubelet does not count, although the
// kubelet shows its resource for five minutes more.
func FromKubelet(socket string) Served {
	return func(ctx context.Context) (map[types.ResourceName]string, error) {
		if _, err := os.Lstat(socket); err != nil {
			return nil, fmt.Errorf("devices of the kubelet: %w", err)
		}
		conn, err := dial(socket)
		if err != nil {
			return nil, fmt.Errorf("devices of the kubelet: %w", err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(ctx, servedLimit)
		defer cancel()
		response, err := podresourcesapi.NewPodResourcesListerClient(conn).GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
		if err != nil {
			return nil, fmt.Errorf("devices of the kubelet: %w", reason(err))
		}
		served := map[types.ResourceName]string{}
		for _, d := range response.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				served[types.ResourceName(d.GetResourceName())] = id
			}
		}
		return served, nil
	}
}

// checkRival returns an error if the kubelet serves the resource. A kubelet that does not answer serves nobody.
func (h *Host) checkRival(ctx context.Context, resource types.ResourceName) error {
	served, err := h.options.Served(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Whether the kubelet serves a resource is not known", "resource", resource, "reason", err.Error())
		return nil
	}
	return rivalError(resource, served)
}

func rivalError(resource types.ResourceName, served map[types.ResourceName]string) error {
	id, rival := served[resource]
	if !rival {
		return nil
	}
	return fmt.Errorf("resource %s is registered with the kubelet, too, which has its device %s: "+
		"stop the plugin that uses the kubelet's folder, or leave the resource to it", resource, id)
}

// watchKubelet notices when the kubelet begins to serve a resource that is served here, and when that is over.
func (h *Host) watchKubelet(ctx context.Context) {
	for {
		sleep(ctx, servedInterval)
		if ctx.Err() != nil {
			return
		}
		// What cannot be told stays as it is.
		if served, err := h.options.Served(ctx); err == nil {
			h.noteServed(ctx, served)
		}
	}
}

// noteServed notes what the kubelet serves.
func (h *Host) noteServed(ctx context.Context, served map[types.ResourceName]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, r := range h.resources {
		rival := rivalError(name, served)
		if rival != nil && r.session == nil && r.listed {
			// The plugin has moved to the kubelet.
			if r.expiry != nil {
				r.expiry.Stop()
			}
			h.forget(r)
		}
		if (rival == nil) != (r.rival == nil) {
			klog.FromContext(ctx).Info("The kubelet and kubecri serve the same resource, or no longer", "resource", name, "served", rival != nil)
			r.rival = rival
			h.touch(r)
		}
	}
}
