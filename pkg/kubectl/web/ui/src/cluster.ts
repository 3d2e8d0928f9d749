// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// What the page knows of the cluster. The types are those of pkg/kubectl/devices.

export interface Resource {
  name: string
  capacity: number
  allocatable: number
  used: number
  usedOutside?: number
}

export interface Holder {
  namespace: string
  pod: string
  uid: string
  container: string
  state: string
  /** How many bytes of the device's memory it really uses; absent if that is not known. */
  memoryUsed?: number | null
  resources: Record<string, number>
}

/** How much of a device's memory programs really use, in bytes, by the node's last reading. */
export interface Measured {
  time?: string
  memoryTotal: number
  memoryUsed: number
  /** The part of it that processes of no known container use. */
  memoryUnowned?: number | null
}

export interface Taint {
  key: string
  value?: string
  effect: string
  timeAdded?: string
}

/** The value of an attribute, as the node's annotation KubeDevice/Attributes has it. */
export type Attribute = string | number | boolean | { version: string }

export interface Device {
  path: string
  kind: string
  id: string
  model?: string
  /** What its plugin says of it, by name. */
  attributes?: Record<string, Attribute>
  health: "Healthy" | "Unhealthy" | "Gone"
  /** Why it is unhealthy, in one word, and the rest of it. */
  reason?: string
  message?: string
  unhealthySince?: string
  taints?: Taint[]
  use: "Free" | "Shared" | "Whole"
  measured?: Measured
  resources: Resource[]
  holders?: Holder[]
}

export interface Node {
  name: string
  /** Whether it is cordoned, and whether it is not ready: new pods get none of its devices then. */
  unschedulable?: boolean
  notReady?: boolean
  problems?: string[]
  devices: Device[]
}

export interface Pod {
  namespace: string
  name: string
  uid: string
  state: string
  since: string
  message?: string
  containers: { name: string; requests?: Record<string, number> }[]
}

/** Since when the cluster is not read, and why. */
export interface Unread {
  since: string
  why: string
}

/** One message of the stream: see "message" in pkg/kubectl/web. */
export interface Message {
  reset?: boolean
  cluster?: string
  complete?: boolean
  unread?: Unread
  read?: boolean
  nodes?: Node[]
  pods?: Pod[]
  goneNodes?: string[]
  gonePods?: string[]
}

/** How a device is drawn: its use, unless something is wrong with it. */
export const looks = ["free", "shared", "whole", "unhealthy", "gone"] as const
export type Look = (typeof looks)[number]

const lookNamed = { Free: "free", Shared: "shared", Whole: "whole", Unhealthy: "unhealthy", Gone: "gone" } as const

export const lookOf = (device: Device): Look => lookNamed[device.health === "Healthy" ? device.use : device.health]

/** What is drawn over the look of a device that has taints. A cordoned device may have others, too. */
export const marks = ["cordoned", "tainted"] as const
export type Mark = (typeof marks)[number]

/** Whether a taint is what "kubectl device cordon" writes: see CordonKey in pkg/deviceinfo. */
export const cordons = (taint: Taint) => taint.key === "kubedevice.io/unschedulable" && taint.effect === "NoSchedule"

export function markOf(device: Device): Mark | undefined {
  if (!device.taints?.length) return undefined
  return device.taints.some(cordons) ? "cordoned" : "tainted"
}

/** What devices are counted and shown by: a look, or, of those that no pod uses, what keeps new pods from them. */
export const states = [...looks, ...marks] as const
export type State = Look | Mark

/** What a device of a node counts as, and only that: see Usage in pkg/kubectl/devices. */
export function stateOf(device: Device, node: Node): State {
  const look = lookOf(device)
  if (look !== "free") return look
  const mark = markOf(device)
  return mark === "cordoned" || node.unschedulable || node.notReady ? "cordoned" : (mark ?? "free")
}

/** All there is of a resource: what pods may have, or, of a device that is unhealthy, might have had. */
export const wholeOf = (resource: Resource) => resource.allocatable || resource.capacity

/** A resource whose name begins with enum is a bit mask, not a quantity. */
export const isMask = (resource: string) => resource.startsWith("enum")

/** How much of a device is in use, from 0 to 1: the largest part of any resource. */
export function usedPart(device: Device): number {
  let part = 0
  for (const r of device.resources) {
    if (!isMask(r.name) && r.used > 0) part = Math.max(part, r.used / Math.max(wholeOf(r), r.used))
  }
  return part
}

/** What is worth saying aloud of a change. */
export interface News {
  unhealthy: string[] // devices, by node and ID
  healthy: string[]
  waiting: string[] // pods, by namespace and name
  placed: string[] // pods, with their node
}

const inOrder = new Intl.Collator("en", { numeric: true }).compare

export class Cluster {
  readonly nodes = new Map<string, Node>()
  readonly pods = new Map<string, Pod>() // by UID
  /** The names of the nodes in order; a new list whenever nodes come or go. */
  names: readonly string[] = []
  /** What the kubeconfig calls it. */
  name = ""
  /** Whether there was a whole snapshot yet. */
  complete = false
  /** Since when the server does not read the cluster, and why; undefined while it does. */
  unread?: Unread
  /** What a new snapshot has not had yet: names of nodes, UIDs of pods. */
  private stale = { nodes: new Set<string>(), pods: new Set<string>() }

  /** Takes a message over. There is news only of what changes after the first snapshot. */
  apply(message: Message): News {
    const news: News = { unhealthy: [], healthy: [], waiting: [], placed: [] }
    if (message.reset) this.stale = { nodes: new Set(this.nodes.keys()), pods: new Set(this.pods.keys()) }
    if (message.reset) this.name = message.cluster ?? ""
    if (message.reset || message.read || message.unread) this.unread = message.unread
    const come: string[] = []
    for (const node of message.nodes ?? []) {
      const last = this.nodes.get(node.name)
      if (last) this.compare(last, node, news)
      else come.push(node.name)
      this.nodes.set(node.name, node)
      this.stale.nodes.delete(node.name)
    }
    for (const pod of message.pods ?? []) {
      if (this.complete && !this.pods.has(pod.uid)) news.waiting.push(`${pod.namespace}/${pod.name}`)
      this.pods.set(pod.uid, pod)
      this.stale.pods.delete(pod.uid)
    }
    const gone = { nodes: new Set(message.goneNodes), pods: new Set(message.gonePods) }
    if (message.complete) {
      this.stale.nodes.forEach((name) => gone.nodes.add(name))
      this.stale.pods.forEach((uid) => gone.pods.add(uid))
      this.stale = { nodes: new Set(), pods: new Set() }
      this.complete = true
    }
    let left = false
    for (const name of gone.nodes) left = this.nodes.delete(name) || left
    for (const uid of gone.pods) {
      const pod = this.pods.get(uid)
      const node = message.nodes?.find((node) => holds(node, uid))
      if (pod && node) news.placed.push(`${pod.namespace}/${pod.name} on ${node.name}`)
      this.pods.delete(uid)
    }
    if (left) this.names = this.names.filter((name) => this.nodes.has(name))
    // To compare names is slow. Of two lists that are sorted, few need to be.
    if (come.length > 0) this.names = [...this.names, ...come.sort(inOrder)].sort(inOrder)
    return news
  }

  private compare(last: Node, now: Node, news: News) {
    const before = new Map(last.devices.map((d) => [d.path, d.health]))
    for (const d of now.devices) {
      const was = before.get(d.path)
      if (!was || was === d.health) continue
      ;(d.health === "Healthy" ? news.healthy : news.unhealthy).push(`${d.id} of ${now.name}`)
    }
  }

  device(node: string, path: string): Device | undefined {
    return this.nodes.get(node)?.devices.find((d) => d.path === path)
  }

  /** The devices of a pod, and what it has of each. */
  devicesOf(uid: string): { node: Node; device: Device; holders: Holder[] }[] {
    const found = []
    for (const name of this.names) {
      const node = this.nodes.get(name)!
      for (const device of node.devices) {
        if (!device.holders?.some((h) => h.uid === uid)) continue
        found.push({ node, device, holders: device.holders.filter((h) => h.uid === uid) })
      }
    }
    return found
  }
}

const holds = (node: Node, uid: string) => node.devices.some((d) => d.holders?.some((h) => h.uid === uid))
