// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption moves resources of device plugins from the kubelet to this program while pods
// hold devices of them. It owns the conversation between three others, which know nothing of it:
// the kubelet's checkpoint, which has the devices that containers were allocated (package
// kubeletstate); the checkpoint of granted devices (package grants); and the device manager
// (package devicemanager), which has the plugins.
//
// A resource moves in these steps:
//
//  1. Its plugin registers with the device manager, while the kubelet still remembers it. A
//     [Controller] finds it.
//  2. An [Adopter] reads the kubelet's checkpoint, and the pods that hold devices of the resource
//     become a part of the checkpoint of granted devices: they are adopted. Devices whose holder is
//     not certain are withheld from all pods.
//  3. The node reports the adopted pods, so that the scheduler knows their devices are not free.
//  4. The controller registers a placeholder plugin with the kubelet. From now on the kubelet
//     admits pods that request the resource, and the device manager offers it.
//
// A pod is adopted for as long as it is there: its containers pass as the kubelet makes them, with
// the devices that the kubelet allocated.
package adoption
