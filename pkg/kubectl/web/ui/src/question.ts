// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Questions about placement, which the scheduler answers. The types are those of pkg/schedulerapi.

import { useEffect, useState } from "preact/hooks"
import type { Cluster, Device, Pod } from "./cluster"
import { get } from "./connection"

export interface Placement {
  node: string
  containers?: { name: string; devices: { path: string; resource: string; quantity: number }[] }[]
}

export interface Why {
  node?: string
  problem?: string
  nodes: number
  fits?: string[]
  reasons?: { text: string; nodes: string[] }[]
  smallest?: Smallest
}

export interface Smallest {
  end?: { pods: { namespace: string; name: string; priority: number }[]; placement: Placement }
  add?: { like: string; placement: Placement }
  relax?: { text: string; nodes: string[]; topology?: boolean }[]
  complete: boolean
}

/** What the server of the page answers: see "answer" in pkg/kubectl/web. */
export interface Answer {
  why?: Why
  placements?: { fits: boolean; pods?: Placement[]; why?: Why }
  problem?: string
}

/** A change of the cluster: without:NAMESPACE/NAME, like:NODE, cordon:NODE or cordon:NODE/DEVICE. */
export type Change = string

/** A change in words, as they follow "if". */
export function changeText(change: Change): string {
  const [kind, what] = [change.slice(0, change.indexOf(":")), change.slice(change.indexOf(":") + 1)]
  switch (kind) {
    case "without":
      return `${what} ended`
    case "like":
      return `there were one more node like ${what}`
    default: {
      const [node, ...path] = what.split("/")
      return path.length > 0 ? `${path.slice(-2).join("/")} of ${node} were cordoned` : `${node} were cordoned`
    }
  }
}

/** A change by which a pod that waits would fit. */
export interface Proposal {
  text: string
  /** The nodes that the pod goes to then. */
  nodes: string[]
  /** The change, if it is one of the cluster and not of the pod. */
  changes?: Change[]
}

/**
 * The changes by which a pod would fit, as "kubectl device why" has them: devices that are connected less well come
 * before the pods to end, those before one more node, and other changes of the pod come last.
 */
export function proposalsOf({ end, add, relax }: Smallest): Proposal[] {
  const relaxed = (topology: boolean): Proposal[] =>
    (relax ?? []).filter((r) => (r.topology ?? false) === topology).map(({ text, nodes }) => ({ text, nodes }))
  return [
    ...relaxed(true),
    ...(end ? [{
      text: "end " + end.pods.map((p) => `${p.namespace}/${p.name} (priority ${p.priority})`).join(", "),
      nodes: [end.placement.node],
      changes: end.pods.map((p) => `without:${p.namespace}/${p.name}`),
    }] : []),
    ...(add ? [{ text: "one more node like " + add.like, nodes: ["the new one"], changes: ["like:" + add.like] }] : []),
    ...relaxed(false),
  ]
}

/** How the proposals are introduced, or why there are none. */
export function proposalsText({ complete }: Smallest, found: number): string {
  if (found > 0) return `It would fit with any one of these${complete ? "" : ", the best that were found"}:`
  if (complete) return "No pods to end, no node more and no constraint less would be enough."
  return "No change was found by which it would fit."
}

/** Names, a few of many. */
export function fewOf(names: string[]): string {
  const few = 3
  return names.length <= few + 1 ? names.join(", ") : `${names.slice(0, few).join(", ")} and ${names.length - few} more`
}

/** What to ask why a pod waits, or where it would go after changes. */
export function queryOf(pod: Pod, changes: Change[]): string {
  const q = new URLSearchParams({ namespace: pod.namespace, name: pod.name })
  for (const change of changes) q.append("change", change)
  return (changes.length > 0 ? "whatif?" : "why?") + q
}

/**
 * The answer to a question, undefined while there is none yet. The scheduler is queried once for each question, and each
 * time that the version is another.
 */
export function useAnswer(query: string, version: string | number = ""): Answer | undefined {
  const [got, setGot] = useState<{ query: string; answer: Answer }>()
  useEffect(() => {
    setGot(undefined)
    if (!query) return
    const stop = new AbortController()
    get(query, stop.signal)
      .then((answer) => answer.json() as Promise<Answer>)
      .then((answer) => setGot({ query, answer }))
      .catch((error) => {
        if (!stop.signal.aborted) setGot({ query, answer: { problem: error instanceof Error ? error.message : String(error) } })
      })
    return () => stop.abort()
  }, [query, version])
  return got?.query === query ? got.answer : undefined
}

/** The devices of a placement that are in the cluster; those of a node that is made up are not. */
export function devicesAt(cluster: Cluster, placement: Placement): Device[] {
  const paths = new Set(placement.containers?.flatMap((c) => c.devices.map((d) => d.path)))
  return [...paths].flatMap((path) => cluster.device(placement.node, path) ?? [])
}

/** Where a pod would go, in words: "n1, with gpu-0 and gpu-1". */
export function placementText(cluster: Cluster, placement: Placement): string {
  const paths = new Set(placement.containers?.flatMap((c) => c.devices.map((d) => d.path)))
  const names = [...paths].map((path) => path.split("/").at(-1)!)
  const node = cluster.nodes.has(placement.node) ? placement.node : "the new node"
  if (names.length === 0) return node
  return `${node}, with ${names.length > 8 ? `${names.length} devices` : names.join(", ")}`
}
