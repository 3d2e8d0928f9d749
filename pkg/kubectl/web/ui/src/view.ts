// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// What of the cluster is shown: filters and selection, and their place in the page's address.

import { type Cluster, type Device, type Look, type Node, type Pod, lookOf, looks } from "./cluster"
import type { Change } from "./question"

export type Size = "large" | "small"

export interface View {
  /** Words that all have to occur in what is shown. */
  search: string
  /** What is shown of devices; none means all. */
  looks: Look[]
  /** The kind of devices that is shown; empty means all. */
  kind: string
  size: Size
  /** The selected device, or the selected node, or the selected pod by its UID. */
  device?: { node: string; path: string }
  node?: string
  pod?: string
  /** The pod that waits, by its UID, about which the scheduler is asked; and what would be otherwise. */
  ask?: string
  changes: Change[]
}

/** What a view has selected when nothing is. */
export const nothing = { device: undefined, node: undefined, pod: undefined }

export function readView(address: string): View {
  const q = new URLSearchParams(address)
  const view: View = {
    search: q.get("q") ?? "",
    looks: looks.filter((look) => q.get("show")?.split(",").includes(look)),
    kind: q.get("kind") ?? "",
    size: q.get("size") === "small" ? "small" : "large",
    changes: [],
  }
  const [node, path] = [q.get("node"), q.get("device")]
  if (node !== null && path !== null) view.device = { node, path }
  else if (node !== null) view.node = node
  else if (q.get("pod")) view.pod = q.get("pod")!
  if (q.get("ask") && q.has("if")) {
    view.ask = q.get("ask")!
    view.changes = q.getAll("if")
  }
  return view
}

/** The part of an address that says what is shown, from "?" on; empty for all of the cluster. */
export function writeView(view: View): string {
  const q = new URLSearchParams()
  if (view.search) q.set("q", view.search)
  if (view.looks.length > 0) q.set("show", view.looks.join(","))
  if (view.kind) q.set("kind", view.kind)
  if (view.size === "small") q.set("size", "small")
  if (view.device) {
    q.set("node", view.device.node)
    q.set("device", view.device.path)
  } else if (view.node) q.set("node", view.node)
  else if (view.pod) q.set("pod", view.pod)
  if (view.ask) {
    q.set("ask", view.ask)
    for (const change of view.changes) q.append("if", change)
  }
  // Slashes, commas and colons may stand in a query as they are, and are easier to read.
  const text = q.toString().replaceAll("%2F", "/").replaceAll("%2C", ",").replaceAll("%3A", ":")
  return text && "?" + text
}

export const isFiltered = (view: View) => view.search.trim() !== "" || view.looks.length > 0 || view.kind !== ""

/** The nodes that are shown, and which of their devices are meant; undefined means all. */
export interface Shown {
  nodes: Node[]
  meant?: Set<Device>
  devices: number
}

const texts = new WeakMap<Device, string>()

/** What a search finds a device by, in lower case. */
function textOf(device: Device): string {
  let text = texts.get(device)
  if (text === undefined) {
    const holders = device.holders?.map((h) => `${h.namespace}/${h.pod}/${h.container}`) ?? []
    text = [device.path, device.id, device.kind, device.model ?? "", ...holders].join("\n").toLowerCase()
    texts.set(device, text)
  }
  return text
}

const wordsOf = (search: string) => search.toLowerCase().split(/\s+/).filter(Boolean)

export function shown(cluster: Cluster, view: View): Shown {
  const all = cluster.names.map((name) => cluster.nodes.get(name)!)
  if (!isFiltered(view)) return { nodes: all, devices: all.reduce((sum, node) => sum + node.devices.length, 0) }
  const words = wordsOf(view.search)
  const wanted = new Set(view.looks)
  const meant = new Set<Device>()
  const nodes = all.filter((node) => {
    const name = node.name.toLowerCase()
    const left = words.filter((word) => !name.includes(word))
    const before = meant.size
    for (const device of node.devices) {
      if (wanted.size > 0 && !wanted.has(lookOf(device))) continue
      if (view.kind && device.kind !== view.kind) continue
      if (left.length > 0 && !left.every((word) => textOf(device).includes(word))) continue
      meant.add(device)
    }
    const byName = words.length > 0 && left.length === 0 && wanted.size === 0 && !view.kind
    return meant.size > before || (byName && node.devices.length === 0)
  })
  return { nodes, meant, devices: meant.size }
}

/** The pods that wait and are shown, those that wait longest first. */
export function shownPods(cluster: Cluster, view: View): Pod[] {
  const words = wordsOf(view.search)
  return [...cluster.pods.values()]
    .filter((pod) => {
      const text = `${pod.namespace}/${pod.name}\n${pod.message ?? ""}`.toLowerCase()
      return words.every((word) => text.includes(word))
    })
    .sort((a, b) => a.since.localeCompare(b.since) || a.name.localeCompare(b.name))
}

/** How many devices look how, of all or of one kind; and all kinds. */
export function count(cluster: Cluster, kind: string): { counts: Record<Look, number>; kinds: string[] } {
  const counts = { free: 0, shared: 0, whole: 0, unhealthy: 0, gone: 0 }
  const kinds = new Set<string>()
  for (const node of cluster.nodes.values()) {
    for (const device of node.devices) {
      kinds.add(device.kind)
      if (!kind || device.kind === kind) counts[lookOf(device)]++
    }
  }
  return { counts, kinds: [...kinds].sort() }
}
