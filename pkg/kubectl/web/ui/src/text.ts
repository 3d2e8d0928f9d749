// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The words of the page: those of the command line.

import {
  type Attribute, type Device, type Measured, type News, type Node, type Pod, type State, type Taint, type Unread, cordons, isMask, lookOf,
  markOf, marks, usedPart,
} from "./cluster"

export const stateNames: Record<State, string> = {
  free: "free",
  shared: "shared",
  whole: "in use",
  unhealthy: "unhealthy",
  gone: "gone",
  cordoned: "cordoned",
  tainted: "tainted",
}

const units = ["MiB", "GiB", "TiB", "PiB", "EiB"]

/** A quantity in words, as grouptree.Human has it. */
export function human(quantity: number): string {
  if (quantity < 2 ** 20) return String(quantity)
  let [value, unit] = [quantity / 2 ** 20, 0]
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024
  return `${Math.trunc(value * 10) / 10} ${units[unit]}`
}

export function quantities(of: Record<string, number>): string {
  return Object.entries(of)
    .map(([name, n]) => `${name} ${isMask(name) ? "0x" + n.toString(16) : human(n)}`)
    .join(", ")
}

/** How much of a device is in use: "free", "shared 75%", "in use"; or what is wrong with it. */
export function useOf(device: Device): string {
  const look = lookOf(device)
  return look === "shared" ? `shared ${Math.max(1, Math.trunc(usedPart(device) * 100))}%` : stateNames[look]
}

/** A taint, as it is written for "kubectl device taint". */
export const taintText = (t: Taint) => `${t.key}${t.value ? "=" + t.value : ""}:${t.effect}`

/** The taints of a device in words: "cordoned", "tainted dedicated=training:NoSchedule"; or "". */
export function taintsOf(device: Device): string {
  const others = device.taints?.filter((t) => !cordons(t)).map(taintText) ?? []
  return [
    ...(markOf(device) === "cordoned" ? ["cordoned"] : []),
    ...(others.length > 0 ? ["tainted " + others.join(" and ")] : []),
  ].join(", ")
}

/** The words for levels of groups. A level without one has its own name. */
const levelWords: Record<string, string> = {
  gpugrp0: "close group", gpugrp1: "wide group", gpu: "GPU", gi: "GPU instance", numa: "NUMA node",
}

/** The groups that a device of a node is in, in words, the closest first: "NVLink pair 1 of wide group 0"; or "". */
export function groupOf(device: Device, node: Node): string {
  const parts = device.path.split("/")
  const words: string[] = []
  for (let i = parts.length - 4; i >= 0; i -= 2) {
    const [level, instance] = [parts[i]!, parts[i + 1]!]
    if (level === "gpugrp0" && i === parts.length - 4) {
      words.push(`${closeGroup(device, node)} ${instance}`)
    } else if (level === "numa" && instance === "none") words.push("no NUMA node")
    else words.push(`${levelWords[level] ?? level} ${instance}`)
  }
  return words.join(" of ")
}

/** What joins the devices of a device's closest group, and how many they are: "NVLink pair", "close group". */
function closeGroup(device: Device, node: Node): string {
  const group = (path: string) => path.split("/").slice(0, -2).join("/")
  const domain = (d: Device) => Object.entries(d.attributes ?? {}).find(([name]) => name.endsWith("nvlinkDomain"))?.[1]
  const members = node.devices.filter((d) => group(d.path) === group(device.path))
  const first = domain(device)
  const linked = members.length > 1 && first !== undefined && members.every((d) => domain(d) === first)
  return `${linked ? "NVLink" : "close"} ${members.length === 2 ? "pair" : "group"}`
}

/** How much of the memory of devices programs really use: "12 GiB of 80 GiB"; or "" if that is not known. */
export function memoryUsedOf(devices: Device[]): string {
  const known = devices.flatMap((d) => d.measured ?? [])
  const sum = (of: (m: Measured) => number) => human(known.reduce((sum, m) => sum + of(m), 0))
  return known.length > 0 ? `${sum((m) => m.memoryUsed)} of ${sum((m) => m.memoryTotal)}` : ""
}

export function podsOf(device: Device): string[] {
  return [...new Set(device.holders?.map((h) => `${h.namespace}/${h.pod}`))]
}

/** What a screen reader says of a device, and a pointer that rests on it shows. */
export function labelOf(device: Device, node: Node): string {
  const group = groupOf(device, node)
  const used = memoryUsedOf([device])
  const pods = podsOf(device)
  const taints = taintsOf(device)
  return [
    `${device.kind} ${device.id}`,
    useOf(device),
    ...(taints ? [taints] : []),
    ...(pods.length > 0 ? ["held by " + pods.join(" and ")] : []),
    ...(used ? [`memory used: ${used}`] : []),
    ...(group ? ["in " + group] : []),
  ].join(", ")
}

/** What is marked on devices of a node: "2 cordoned". */
export const marksOf = (node: Node): string[] =>
  marks.flatMap((mark) => {
    const n = node.devices.filter((device) => markOf(device) === mark).length
    return n > 0 ? [`${n} ${stateNames[mark]}`] : []
  })

/** What is wrong with a device, as the rest of a sentence that its use begins; or "". */
export function wrongWith(device: Device): string {
  switch (device.health) {
    case "Unhealthy": {
      const reason = device.reason === "Unhealthy" ? "" : device.reason
      return `: ${[reason, device.message].filter(Boolean).join(", ") || "its plugin reports so"}; no pod gets it`
    }
    case "Gone":
      return ": a pod holds it, and its node does not list it any more"
    default:
      return ""
  }
}

/** Why new pods get no device of a node: "not ready", "cordoned", both or nothing. */
export const closedBy = (node: Node): string[] => [
  ...(node.notReady ? ["not ready"] : []),
  ...(node.unschedulable ? ["cordoned"] : []),
]

/** How many devices of a node each pod may have, of those that are healthy. */
export function freeOf(node: Node): string {
  if (node.devices.length === 0) return node.problems ? "unreadable" : "no devices"
  const healthy = node.devices.filter((d) => d.health === "Healthy")
  const free = closedBy(node).length > 0 ? [] : healthy.filter((d) => d.use === "Free" && !d.taints?.length)
  return `${free.length} of ${healthy.length} free`
}

/** That the cluster is not read any more. */
export const unreadText = ({ since, why }: Unread): string =>
  `not connected to the cluster since ${new Date(since).toLocaleString()}: ${why}`

/** Why a pod waits, without the numbers of all nodes and what is said of preemption. */
export function reasonOf(pod: Pod): string {
  let reason = pod.message ?? ""
  if (pod.state !== "Waiting") return reason
  const nodes = reason.indexOf(" nodes are available: ")
  if (nodes >= 0) reason = reason.slice(nodes + " nodes are available: ".length)
  return reason.split(" preemption: ")[0]!.trim().replace(/\.$/, "")
}

export function requestsOf(pod: Pod): string {
  const sums: Record<string, number> = {}
  for (const c of pod.containers) {
    for (const [name, n] of Object.entries(c.requests ?? {})) sums[name] = (sums[name] ?? 0) + n
  }
  return Object.entries(sums)
    .map(([name, n]) => `${human(n)} ${name}`)
    .join(", ")
}

/** How long ago, in the way of kubectl: 45s, 12m, 3h, 2d. */
export function age(since: string, now: number): string {
  const seconds = Math.max(0, Math.trunc((now - Date.parse(since)) / 1000))
  if (seconds < 120) return `${seconds}s`
  if (seconds < 7200) return `${Math.trunc(seconds / 60)}m`
  if (seconds < 172800) return `${Math.trunc(seconds / 3600)}h`
  return `${Math.trunc(seconds / 86400)}d`
}

/** What is said aloud of a change. */
export function spoken(news: News): string {
  const say = (list: string[], what: string, one: string, many: string) => {
    if (list.length === 0) return []
    if (list.length > 3) return [`${list.length} ${what} ${many}`]
    return [`${list.join(", ")} ${list.length === 1 ? one : many}`]
  }
  return [
    ...say(news.unhealthy, "devices", "is not healthy", "are not healthy"),
    ...say(news.healthy, "devices", "is healthy again", "are healthy again"),
    ...say(news.waiting, "pods", "waits", "wait"),
    ...say(news.placed, "pods", "has its devices", "have their devices"),
  ].join(". ")
}

/** The value of an attribute as text. */
export function attributeText(value: Attribute): string {
  return typeof value === "object" ? value.version : String(value)
}
