// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import type { Device, Holder, Node, Pod, Taint } from "../src/cluster"

export function device(path: string, change: Partial<Device> = {}): Device {
  const [kind, id] = path.split("/").slice(-2) as [string, string]
  const resources = [{ name: "memory", capacity: 80, allocatable: 80, used: 0 }]
  return { path, kind, id, health: "Healthy", use: "Free", resources, ...change }
}

export const holder = (pod: string, change: Partial<Holder> = {}): Holder => ({
  namespace: "default", pod, uid: "uid-" + pod, container: "main", state: "Granted", resources: { memory: 20 }, ...change,
})

export const cordon: Taint = { key: "kubedevice.io/unschedulable", effect: "NoSchedule" }
export const taint: Taint = { key: "dedicated", value: "training", effect: "NoExecute" }

/** A node of GPUs in pairs, and two pairs to a socket. */
export const node = (name: string, gpus = 8, change: (i: number) => Partial<Device> = () => ({})): Node => ({
  name,
  devices: Array.from({ length: gpus }, (_, i) => device(`gpugrp1/${i >> 2}/gpugrp0/${i >> 1}/gpu/gpu-${i}`, change(i))),
})

export const pod = (name: string, message = ""): Pod => ({
  namespace: "default", name, uid: "uid-" + name, state: "Waiting", since: "2026-01-01T00:00:00Z", message,
  containers: [{ name: "main", requests: { "nvidia.com/gpu": 2 } }],
})
