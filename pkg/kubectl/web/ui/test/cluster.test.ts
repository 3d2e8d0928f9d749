// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict"
import test from "node:test"
import { Cluster, lookOf, markOf, usedPart } from "../src/cluster"
import { spoken, unreadText } from "../src/text"
import { cordon, device, holder, node, pod, taint } from "./fixture"

test("names are in the order of people", () => {
  const cluster = new Cluster()
  cluster.apply({ reset: true, nodes: [node("n10"), node("n9")] })
  cluster.apply({ complete: true, nodes: [node("n1")] })
  assert.deepEqual(cluster.names, ["n1", "n9", "n10"])
  cluster.apply({ nodes: [node("n11"), node("n2"), node("n9")], goneNodes: ["n1"] })
  assert.deepEqual(cluster.names, ["n2", "n9", "n10", "n11"])
})

test("what a new snapshot does not have is gone, and not before it is complete", () => {
  const cluster = new Cluster()
  cluster.apply({ reset: true, complete: true, nodes: [node("a"), node("b")], pods: [pod("p")] })
  cluster.apply({ reset: true, nodes: [node("b")] })
  assert.deepEqual([cluster.names, cluster.pods.size], [["a", "b"], 1])
  cluster.apply({ complete: true, nodes: [node("c")] })
  assert.deepEqual([cluster.names, cluster.pods.size], [["b", "c"], 0])
})

test("what is gone is gone", () => {
  const cluster = new Cluster()
  cluster.apply({ reset: true, complete: true, nodes: [node("a"), node("b")], pods: [pod("p")] })
  cluster.apply({ goneNodes: ["a"], gonePods: ["uid-p"] })
  assert.deepEqual([cluster.names, cluster.pods.size], [["b"], 0])
})

test("it is known since when the cluster is not read, until it is again", () => {
  const cluster = new Cluster()
  const unread = { since: "2026-01-01T00:00:00Z", why: "Unauthorized" }
  cluster.apply({ reset: true, complete: true, unread })
  assert.equal(cluster.unread, unread)
  assert.match(unreadText(unread), /^not connected to the cluster since .*202.*: Unauthorized$/)
  cluster.apply({ nodes: [node("a")] })
  assert.equal(cluster.unread, unread)
  cluster.apply({ read: true })
  assert.equal(cluster.unread, undefined)
  cluster.apply({ unread })
  cluster.apply({ reset: true, complete: true }) // of a server that was started since
  assert.equal(cluster.unread, undefined)
})

test("changes are said aloud, and the first snapshot is not", () => {
  const cluster = new Cluster()
  const unhealthy = node("a", 2, (i) => (i === 1 ? { health: "Unhealthy" } : {}))
  const with3 = (name: string) => node("a", 2, (i) => (i === 0 ? { use: "Whole", holders: [holder(name)] } : {}))
  assert.equal(spoken(cluster.apply({ reset: true, complete: true, nodes: [unhealthy], pods: [pod("p")] })), "")
  assert.equal(spoken(cluster.apply({ nodes: [node("a", 2)] })), "gpu-1 of a is healthy again")
  assert.equal(spoken(cluster.apply({ nodes: [unhealthy], pods: [pod("q")] })), "gpu-1 of a is not healthy. default/q waits")
  assert.equal(spoken(cluster.apply({ nodes: [with3("q")], gonePods: ["uid-q", "uid-p"] })),
    "gpu-1 of a is healthy again. default/q on a has its devices")
  const many = node("a", 4, () => ({ health: "Unhealthy" }))
  cluster.apply({ nodes: [node("a", 4)] })
  assert.equal(spoken(cluster.apply({ nodes: [many] })), "4 devices are not healthy")
})

test("a device looks as it is used, unless it is not healthy", () => {
  assert.equal(lookOf(device("gpu/a", { use: "Whole" })), "whole")
  assert.equal(lookOf(device("gpu/a", { use: "Whole", health: "Unhealthy" })), "unhealthy")
  assert.equal(lookOf(device("gpu/a", { health: "Gone" })), "gone")
})

test("a device with the cordon among its taints is cordoned, others are tainted", () => {
  assert.equal(markOf(device("gpu/a")), undefined)
  assert.equal(markOf(device("gpu/a", { taints: [] })), undefined)
  assert.equal(markOf(device("gpu/a", { taints: [taint, cordon] })), "cordoned")
  assert.equal(markOf(device("gpu/a", { taints: [{ ...cordon, effect: "NoExecute" }] })), "tainted")
})

test("the used part is the largest of any resource, without masks", () => {
  const resources = [
    { name: "memory", capacity: 80, allocatable: 80, used: 60 },
    { name: "cards", capacity: 1, allocatable: 1, used: 0 },
    { name: "enumPorts", capacity: 3, allocatable: 3, used: 3 },
  ]
  assert.equal(usedPart(device("gpu/a", { resources })), 0.75)
  assert.equal(usedPart(device("gpu/a", { resources: [{ name: "m", capacity: 0, allocatable: 0, used: 5 }] })), 1)
})

test("the devices of a pod are found on all nodes", () => {
  const cluster = new Cluster()
  const held = (i: number) => (i < 2 ? { holders: [holder("p"), holder("q")] } : {})
  cluster.apply({ reset: true, complete: true, nodes: [node("a", 4, held), node("b", 4)] })
  assert.deepEqual(cluster.devicesOf("uid-p").map((f) => [f.node.name, f.device.id, f.holders.length]),
    [["a", "gpu-0", 1], ["a", "gpu-1", 1]])
})
