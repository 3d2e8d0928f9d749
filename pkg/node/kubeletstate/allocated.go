// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
)

// Files are the kubelet's files.
type Files struct {
	// Checkpoint is the path of the checkpoint, usually [Path].
	Checkpoint string
	// ResourceClaims is the path of the checkpoint of claims, [ClaimsName] in the root directory.
	ResourceClaims string
}

// Injections returns what plugins that are registered with the kubelet allocated to a container.
// The kubelet writes it before the container is created. For a pod without any, which is the usual
// case, nothing is decoded: that takes a millisecond for 110 pods.
func (f Files) Injections(podUID, container string) ([]firewall.KubeletInjection, error) {
	raw, err := os.ReadFile(f.Checkpoint)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Contains(raw, []byte(podUID)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the kubelet's checkpoint: %w", err)
	}
	state, err := decode(f.Checkpoint, raw)
	if err != nil {
		return nil, err
	}
	var injections []firewall.KubeletInjection
	for _, h := range state.Holdings {
		if h.PodUID != podUID || h.Container != container || h.Placeholder {
			continue
		}
		injection := firewall.KubeletInjection{
			Resource: h.Resource, Envs: h.Response.GetEnvs(), Annotations: h.Response.GetAnnotations(),
		}
		for _, mount := range h.Response.GetMounts() {
			injection.Mounts = append(injection.Mounts, mount.GetContainerPath())
		}
		for _, device := range h.Response.GetCdiDevices() {
			injection.CDIDevices = append(injection.CDIDevices, device.GetName())
		}
		injections = append(injections, injection)
	}
	return injections, nil
}

// ClaimsName is the name of the file, in the kubelet's root directory, in which the kubelet
// remembers what drivers have prepared for resource claims.
const ClaimsName = "dra_manager_state"

// Claims returns the drivers of the CDI devices that were prepared for claims of a pod, by the
// device. Unlike the kubelet's PodResources API, the record has those of init containers. A missing
// file has none. A device of two drivers, which CDI has once, has none of them. Which container of
// the pod names the claim is not in the record; firewall.Container.Claimed says why that is enough.
func (f Files) Claims(podUID string) (map[string]string, error) {
	raw, err := os.ReadFile(f.ResourceClaims)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the kubelet's checkpoint of resource claims: %w", err)
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
		return nil, fmt.Errorf("the kubelet's checkpoint of resource claims: %s: %w", f.ResourceClaims, err)
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
