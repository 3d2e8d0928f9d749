// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Files are the kubelet's files.
type Files struct {
	// Checkpoint is the path of the checkpoint, usually [Path].
	Checkpoint string
	// ResourceClaims is the path of the record of claims, [ClaimsName] in the root directory.
	ResourceClaims string
}

// Gifts returns what plugins that are registered with the kubelet allocated to a container. The
// kubelet writes it before the container is created.
func (f Files) Gifts(podUID, container string) ([]firewall.Gift, error) {
	state, err := Read(f.Checkpoint)
	if err != nil {
		return nil, err
	}
	var gifts []firewall.Gift
	for _, h := range state.Holdings {
		if h.PodUID != podUID || h.Container != container || h.Placeholder {
			continue
		}
		gift := firewall.Gift{
			Resource: h.Resource, Envs: h.Response.GetEnvs(), Annotations: h.Response.GetAnnotations(),
		}
		for _, mount := range h.Response.GetMounts() {
			gift.Mounts = append(gift.Mounts, mount.GetContainerPath())
		}
		for _, device := range h.Response.GetCdiDevices() {
			gift.CDIDevices = append(gift.CDIDevices, device.GetName())
		}
		gifts = append(gifts, gift)
	}
	return gifts, nil
}

// Served returns the resources of plugins that are registered with the kubelet, or were within the
// last five minutes.
func (f Files) Served() ([]types.ResourceName, error) {
	state, err := Read(f.Checkpoint)
	return state.Resources, err
}

// ClaimsName is the name of the file, in the kubelet's root directory, in which the kubelet
// remembers what drivers have prepared for resource claims.
const ClaimsName = "dra_manager_state"

// Claims returns the drivers of the CDI devices that were prepared for claims of a pod, by the
// device. Unlike the kubelet's PodResources API, the record has those of init containers. A missing
// file has none. A device of two drivers, which CDI has once, has none of them.
func (f Files) Claims(podUID string) (map[string]string, error) {
	raw, err := os.ReadFile(f.ResourceClaims)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the kubelet's record of resource claims: %w", err)
	}
	var content struct{ Data string }
	var data struct {
		ClaimInfoStateList []struct {
			PodUIDs     map[string]any
			DriverState map[string]struct {
				Devices []struct{ CDIDeviceIDs []string }
			}
		}
	}
	err = json.Unmarshal(raw, &content)
	if err == nil {
		err = json.Unmarshal([]byte(content.Data), &data)
	}
	if err != nil {
		return nil, fmt.Errorf("the kubelet's record of resource claims: %s: %w", f.ResourceClaims, err)
	}
	drivers := map[string]string{}
	for _, claim := range data.ClaimInfoStateList {
		if _, is := claim.PodUIDs[podUID]; !is {
			continue
		}
		for driver, state := range claim.DriverState {
			for _, device := range state.Devices {
				for _, id := range device.CDIDeviceIDs {
					if other, is := drivers[id]; is && other != driver {
						drivers[id] = ""
						continue
					}
					drivers[id] = driver
				}
			}
		}
	}
	return drivers, nil
}
