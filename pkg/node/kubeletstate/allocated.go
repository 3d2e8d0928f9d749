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
)

// ReadGifts returns what plugins that are registered with the kubelet gave a container, as the
// kubelet's checkpoint at path has it: it is written before the container is created.
func ReadGifts(path, podUID, container string) ([]firewall.Gift, error) {
	state, err := Read(path)
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

// ClaimsName is the name of the file, in the kubelet's root directory, in which the kubelet
// remembers what drivers have prepared for resource claims.
const ClaimsName = "dra_manager_state"

// ReadClaims returns the drivers of the CDI devices that were prepared for claims of a pod,
// by the device, as the file at path has them. Unlike the kubelet's PodResources API, it has those
// of init containers. A file that is not there says nothing. A device of two drivers, which CDI has
// once, has none of them.
func ReadClaims(path, podUID string) (map[string]string, error) {
	raw, err := os.ReadFile(path)
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
		return nil, fmt.Errorf("the kubelet's record of resource claims: %s: %w", path, err)
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
