// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// What of the cluster is shown: filters and selection, and their place in the page's address.

import { type Cluster, type Device, type Node, type Pod, type State, lookOf, markOf, stateOf, states } from "./cluster"
import type { Change } from "./question"
import { closedBy, stateNames, taintText } from "./text"

export type Size = "large" | "small"

export interface View {
  /** Words that all have to occur in what is shown. */
  search: string
  /** What is shown of devices; none means all. */
  states: State[]
  /** The kind of devices that is shown; empty means all. */
  kind: string
  size: Size
  /** The selected device, or the selected node, or the selected pod by its UID. */
  device?: { node: string; path: string }
  node?: string
  pod?: string
  /** The pod that waits, by its UID, about which the scheduler is queried; and what would be otherwise. */
  ask?: string
  changes: Change[]
}

/** What a view has selected when nothing is. */
export const nothing = { device: undefined, node: undefined, pod: undefined }

/** A view without a question. */
export const noQuestion = { ask: undefined, changes: [] }

export function readView(address: string): View {
  const q = new URLSearchParams(address)
  const view: View = {
    search: q.get("q") ?? "",
    states: states.filter((state) => q.get("show")?.split(",").includes(state)),
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
  if (view.states.length > 0) q.set("show", view.states.join(","))
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

export const isFiltered = (view: View) => view.search.trim() !== "" || view.states.length > 0 || view.kind !== ""

/** The nodes that are shown, and which of their devices are meant; undefined means all. */
export interface Shown {
  nodes: Node[]
  meant?: (node: Node) => Set<Device>
  devices: number
}

/** Before the text of a device: what no word has. */
const end = "\0"

/** What a search finds a device by. */
function textOf(device: Device): string {
  let text = `${end}${device.path}\n${device.kind}\n${device.model ?? ""}\n${stateNames[lookOf(device)]}\n`
  const mark = markOf(device)
  if (mark) text += `${stateNames[mark]}\n`
  for (const taint of device.taints ?? []) text += `${taintText(taint)}\n`
  if (device.reason) text += `${device.reason}\n`
  for (const h of device.holders ?? []) text += `${h.namespace}/${h.pod}/${h.container}\n`
  return text
}

const texts = new WeakMap<Node, string>()

/** What a search finds a node by, and then each of its devices, in lower case; made once. */
function textsOf(node: Node): string {
  let text = texts.get(node)
  if (text === undefined) {
    text = [node.name, ...closedBy(node)].join("\n")
    for (const device of node.devices) text += textOf(device)
    texts.set(node, (text = text.toLowerCase()))
  }
  return text
}

const wordsOf = (search: string) => search.toLowerCase().split(/\s+/).filter(Boolean)

/** The devices of a node that a view means, or undefined if it does not show the node. */
function meantOf(node: Node, view: View, words: string[]): Set<Device> | undefined {
  const text = words.length > 0 ? textsOf(node) : ""
  if (!words.every((word) => text.includes(word))) return undefined
  const [name, ...devices] = words.length > 0 ? text.split(end) : [""]
  const left = words.filter((word) => !name!.includes(word))
  const wanted = new Set<State>(view.states)
  const meant = new Set<Device>()
  node.devices.forEach((device, i) => {
    if (wanted.size > 0 && !wanted.has(stateOf(device, node))) return
    if (view.kind && device.kind !== view.kind) return
    if (left.every((word) => devices[i]!.includes(word))) meant.add(device)
  })
  const byName = words.length > 0 && left.length === 0 && wanted.size === 0 && !view.kind
  return meant.size > 0 || (byName && node.devices.length === 0) ? meant : undefined
}

/** What the last filters have found: few nodes are others when the cluster changes. */
let last = { filters: "", meant: new WeakMap<Node, Set<Device> | false>() }

export function shown(cluster: Cluster, view: View): Shown {
  const all = cluster.names.map((name) => cluster.nodes.get(name)!)
  if (!isFiltered(view)) return { nodes: all, devices: all.reduce((sum, node) => sum + node.devices.length, 0) }
  const words = wordsOf(view.search)
  const filters = JSON.stringify([words, view.states, view.kind])
  if (last.filters !== filters) last = { filters, meant: new WeakMap() }
  const { meant } = last
  let devices = 0
  const nodes = all.filter((node) => {
    let found = meant.get(node)
    if (found === undefined) meant.set(node, (found = meantOf(node, view, words) ?? false))
    if (found) devices += found.size
    return found
  })
  return { nodes, meant: (node) => meant.get(node) || new Set(), devices }
}

/** The pods that wait and are shown, those that wait longest first. */
export function shownPods(cluster: Cluster, view: View): Pod[] {
  const words = wordsOf(view.search)
  const pods = [...cluster.pods.values()].filter((pod) => {
    if (words.length === 0) return true
    const text = `${pod.namespace}/${pod.name}\n${pod.message ?? ""}`.toLowerCase()
    return words.every((word) => text.includes(word))
  })
  const order = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
  return pods.sort((a, b) => order(a.since, b.since) || order(a.name, b.name))
}

export type Counts = Record<State, number>

const none = (): Counts => ({ free: 0, shared: 0, whole: 0, unhealthy: 0, gone: 0, cordoned: 0, tainted: 0 })

const counted = new WeakMap<Node, Map<string, Counts>>()

/** How many devices of a node are in which state, by kind; counted once. */
export function countsOf(node: Node): Map<string, Counts> {
  let found = counted.get(node)
  if (!found) {
    counted.set(node, (found = new Map()))
    for (const device of node.devices) {
      const counts = found.get(device.kind) ?? none()
      found.set(device.kind, counts)
      counts[stateOf(device, node)]++
    }
  }
  return found
}

/** How many devices are in which state, of all or of one kind; and all kinds. */
export function count(cluster: Cluster, kind: string): { counts: Counts; kinds: string[] } {
  const counts = none()
  const kinds = new Set<string>()
  for (const node of cluster.nodes.values()) {
    for (const [of, those] of countsOf(node)) {
      kinds.add(of)
      if (kind && of !== kind) continue
      for (const state of states) counts[state] += those[state]
    }
  }
  return { counts, kinds: [...kinds].sort() }
}
