// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The words of the page: those of the command line.

import { type Device, type Look, type News, type Node, type Pod, isMask, lookOf, usedPart } from "./cluster"

export const lookNames: Record<Look, string> = {
  free: "free",
  shared: "shared",
  whole: "in use",
  unhealthy: "unhealthy",
  gone: "gone",
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
  return look === "shared" ? `shared ${Math.max(1, Math.trunc(usedPart(device) * 100))}%` : lookNames[look]
}

/** The group that a device is in, or "". */
export const groupOf = (path: string) => path.split("/").slice(0, -2).join("/")

export function podsOf(device: Device): string[] {
  return [...new Set(device.holders?.map((h) => `${h.namespace}/${h.pod}`))]
}

/** What a screen reader says of a device, and a pointer that rests on it shows. */
export function labelOf(device: Device): string {
  const group = groupOf(device.path)
  const pods = podsOf(device)
  return [
    `${device.kind} ${device.id}`,
    useOf(device),
    ...(pods.length > 0 ? ["held by " + pods.join(" and ")] : []),
    ...(group ? ["in " + group] : []),
  ].join(", ")
}

export function freeOf(node: Node): string {
  if (node.devices.length === 0) return node.problems ? "unreadable" : "no devices"
  const healthy = node.devices.filter((d) => d.health === "Healthy")
  return `${healthy.filter((d) => d.use === "Free").length} of ${healthy.length} free`
}

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
