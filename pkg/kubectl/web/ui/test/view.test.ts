// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict"
import test from "node:test"
import { Cluster, type Device, type Node, stateOf, wholeOf } from "../src/cluster"
import { age, attributeText, closedBy, freeOf, groupOf, human, labelOf, marksOf, memoryUsedOf, reasonOf, requestsOf, useOf, wrongWith } from "../src/text"
import { type View, count, readView, shown, shownPods, writeView } from "../src/view"
import { cordon, device, holder, node, pod, taint } from "./fixture"

const all: View = { search: "", states: [], kind: "", size: "large", changes: [] }

test("the address has all of a view, and nothing of a plain one", () => {
  assert.equal(writeView(readView("?token=secret")), "")
  for (const view of [
    all,
    { ...all, search: "a b&c=d", states: ["free" as const, "gone" as const], kind: "intel.com/qat", size: "small" as const },
    { ...all, device: { node: "n", path: "gpugrp0/1/gpu/GPU-7" } },
    { ...all, device: { node: "n", path: "" } },
    { ...all, node: "n" },
    { ...all, pod: "uid" },
    { ...all, pod: "uid", ask: "uid", changes: ["without:default/a", "cordon:n/gpugrp0/1/gpu/GPU-7", "like:n"] },
  ]) {
    assert.deepEqual(readView(writeView(view)), view)
  }
  assert.deepEqual(readView("?ask=uid"), all) // a question needs something to be otherwise
  assert.deepEqual(readView("?show=cordoned,none,free&size=huge"), { ...all, states: ["free", "cordoned"] })
})

function cluster(): Cluster {
  const c = new Cluster()
  const held = (i: number) => (i === 0 ? { use: "Whole" as const, model: "H100", holders: [holder("trainer")] } : {})
  const unhealthy = (i: number) =>
    i === 3 ? { health: "Unhealthy" as const, taints: [cordon] } : i < 2 ? { taints: [taint] } : {}
  const other = { name: "nics", devices: [device("nic/eth0")] }
  const broken = { name: "broken", devices: [], problems: ["unreadable inventory"] }
  c.apply({ reset: true, complete: true, nodes: [node("alpha", 4, held), node("beta", 4, unhealthy), other, broken],
    pods: [pod("big", "needs 8 GPUs"), pod("small")] })
  return c
}

const found = (view: Partial<View>) => {
  const result = shown(cluster(), { ...all, ...view })
  return result.nodes.map((n) => `${n.name} ${result.meant ? result.meant(n).size : "all"}`)
}

test("a view shows the nodes that have what is meant", () => {
  assert.deepEqual(found({}), ["alpha all", "beta all", "broken all", "nics all"])
  assert.deepEqual(found({ search: "ALPHA" }), ["alpha 4"])
  assert.deepEqual(found({ search: "trainer" }), ["alpha 1"])
  assert.deepEqual(found({ search: "alpha h100" }), ["alpha 1"])
  assert.deepEqual(found({ search: "alpha trainer beta" }), [])
  assert.deepEqual(found({ states: ["unhealthy", "whole"] }), ["alpha 1", "beta 1"])
  assert.deepEqual(found({ states: ["unhealthy"], search: "alpha" }), [])
  assert.deepEqual(found({ kind: "nic" }), ["nics 1"])
  assert.deepEqual(found({ search: "brok" }), ["broken 0"])
})

test("devices with taints are found by click and by word", () => {
  assert.deepEqual(found({ states: ["tainted"] }), ["beta 2"])
  assert.deepEqual(found({ states: ["cordoned", "whole"] }), ["alpha 1"]) // what is cordoned is unhealthy first
  assert.deepEqual(found({ search: "tainted" }), ["beta 2"])
  assert.deepEqual(found({ search: "cordoned unhealthy" }), ["beta 1"])
  assert.deepEqual(found({ search: "cordoned", states: ["free"] }), [])
  assert.deepEqual(found({ search: "dedicated=training:NoExecute beta" }), ["beta 2"])
})

test("a device counts as what kubectl device top counts it as", () => {
  const free = device("gpu/a")
  const open = { name: "n", devices: [] }
  for (const [change, of, want] of [
    [{}, {}, "free"],
    [{ taints: [taint] }, {}, "tainted"],
    [{ taints: [taint, cordon] }, {}, "cordoned"],
    [{}, { unschedulable: true }, "cordoned"],
    [{}, { notReady: true }, "cordoned"],
    [{ use: "Whole", taints: [cordon] }, {}, "whole"],
    [{ health: "Unhealthy", taints: [cordon] }, { unschedulable: true }, "unhealthy"],
  ] as const) {
    assert.equal(stateOf({ ...free, ...change, taints: [...((change as Partial<Device>).taints ?? [])] }, { ...open, ...of }), want)
  }
})

test("all there is of an unhealthy device is what it might have had", () => {
  const memory = { name: "memory", capacity: 80, allocatable: 80, used: 0 }
  assert.equal(wholeOf(memory), 80)
  assert.equal(wholeOf({ ...memory, allocatable: 0 }), 80)
})

test("the cluster has the name of the kubeconfig", () => {
  const c = new Cluster()
  c.apply({ reset: true, cluster: "prod", complete: true })
  c.apply({ nodes: [] })
  assert.equal(c.name, "prod")
})

test("what is found follows the cluster", () => {
  const c = cluster()
  const search = (search: string) => shown(c, { ...all, search }).nodes.map((n) => n.name)
  assert.deepEqual(search("newcomer"), [])
  c.apply({ nodes: [node("beta", 4, (i) => (i === 0 ? { holders: [holder("newcomer")] } : {}))] })
  assert.deepEqual(search("newcomer"), ["beta"])
  assert.deepEqual(search("cordoned"), [])
  assert.equal(count(c, "").counts.cordoned, 0)
})

test("nodes that take no pods are found by word", () => {
  const c = cluster()
  c.apply({ nodes: [{ ...node("gamma", 2), unschedulable: true }, { ...node("delta", 2), notReady: true }] })
  const search = (search: string) => shown(c, { ...all, search }).nodes.map((n) => n.name)
  assert.deepEqual(search("cordoned"), ["beta", "gamma"])
  assert.deepEqual(search("ready"), ["delta"])
})

test("devices are counted, of all kinds or of one", () => {
  assert.deepEqual(count(cluster(), ""), {
    counts: { free: 5, shared: 0, whole: 1, unhealthy: 1, gone: 0, cordoned: 0, tainted: 2 }, kinds: ["gpu", "nic"],
  })
  assert.equal(count(cluster(), "nic").counts.free, 1)
})

test("pods are found by name and reason", () => {
  assert.deepEqual(shownPods(cluster(), all).map((p) => p.name), ["big", "small"])
  assert.deepEqual(shownPods(cluster(), { ...all, search: "8 gpus" }).map((p) => p.name), ["big"])
})

test("words are those of the command line", () => {
  assert.deepEqual([1, 2 ** 20, 80 * 2 ** 30, 1.55 * 2 ** 30].map(human), ["1", "1 MiB", "80 GiB", "1.5 GiB"])
  assert.equal(reasonOf(pod("p", "0/4 nodes are available: 3 have no gpu. preemption: 0/4 nodes are available.")),
    "3 have no gpu")
  assert.equal(requestsOf(pod("p")), "2 nvidia.com/gpu")
  const now = Date.parse("2026-01-03T01:00:00Z")
  assert.deepEqual(["2026-01-03T00:59:00Z", "2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"]
    .map((t) => age(t, now)), ["60s", "60m", "25h", "2d"])
})

test("what is wrong with a device is in the words of its node", () => {
  assert.equal(wrongWith(device("gpu/a")), "")
  assert.equal(wrongWith(device("gpu/a", { health: "Unhealthy" })), ": its plugin reports so; no pod gets it")
  assert.equal(wrongWith(device("gpu/a", { health: "Unhealthy", reason: "Xid", message: "79, off the bus" })),
    ": Xid, 79, off the bus; no pod gets it")
  assert.deepEqual(marksOf(node("n", 4, (i) => (i < 2 ? { taints: [cordon] } : { taints: [taint] }))),
    ["2 cordoned", "2 tainted"])
})

test("a device says what it is without its colour", () => {
  const part = [{ name: "memory", capacity: 80, allocatable: 80, used: 60 }]
  const shared = device("gpugrp0/1/gpu/g3", { use: "Shared", resources: part, holders: [holder("a"), holder("b")] })
  const of = (device: Device) => labelOf(device, { name: "n", devices: [device] })
  assert.equal(of(shared), "gpu g3, shared 75%, held by default/a and default/b, in close group 1")
  assert.equal(of({ ...shared, measured: { memoryTotal: 80 * 2 ** 30, memoryUsed: 12 * 2 ** 30 } }),
    "gpu g3, shared 75%, held by default/a and default/b, memory used: 12 GiB of 80 GiB, in close group 1")
  assert.equal(of(device("gpu/g3", { taints: [taint, cordon] })),
    "gpu g3, free, cordoned, tainted dedicated=training:NoExecute")
  assert.equal(useOf(device("gpu/a", { health: "Unhealthy" })), "unhealthy")
})

test("groups are in words", () => {
  const linked = { attributes: { "gpu.nvidia.com/nvlinkDomain": 0 } }
  const last = (n: Node) => groupOf(n.devices.at(-1)!, n)
  assert.equal(last(node("n", 8)), "close pair 3 of wide group 1")
  assert.equal(last(node("n", 7)), "close group 3 of wide group 1")
  assert.equal(last(node("n", 8, () => linked)), "NVLink pair 3 of wide group 1")
  assert.equal(last(node("n", 8, (i) => (i === 7 ? linked : {}))), "close pair 3 of wide group 1")
  const other = (path: string) => last({ name: "n", devices: [device(path)] })
  assert.equal(other("gpugrp0/1/gpu/g0/gi/2"), "GPU g0 of close group 1")
  assert.equal(other("numa/0/intel.com:qat/q0"), "NUMA node 0")
  assert.equal(other("numa/none/intel.com:qat/q0"), "no NUMA node")
  assert.equal(other("board/b0/widget/w0"), "board b0")
  assert.equal(other("gpu/g0"), "")
})

test("the memory that programs use is that of the devices of which it is known", () => {
  const measured = { memoryTotal: 80 * 2 ** 30, memoryUsed: 30 * 2 ** 30 }
  const of = (known: number) => memoryUsedOf(node("n", 4, (i) => (i < known ? { measured } : {})).devices)
  assert.deepEqual([of(0), of(1), of(3)], ["", "30 GiB of 80 GiB", "90 GiB of 240 GiB"])
})

test("free is what each pod may have", () => {
  const unhealthy = node("n", 4, (i) => (i === 0 ? { health: "Unhealthy" } : {}))
  assert.equal(freeOf(unhealthy), "3 of 3 free")
  assert.equal(freeOf(node("n", 8, () => ({ taints: [cordon] }))), "0 of 8 free")
  assert.equal(freeOf(node("n", 8, (i) => (i < 2 ? { taints: [taint] } : { taints: [] }))), "6 of 8 free")
  for (const [closed, why] of [
    [{ unschedulable: true }, ["cordoned"]],
    [{ notReady: true }, ["not ready"]],
    [{ notReady: true, unschedulable: true }, ["not ready", "cordoned"]],
  ] as const) {
    assert.deepEqual([freeOf({ ...unhealthy, ...closed }), closedBy({ ...unhealthy, ...closed })], ["0 of 3 free", why])
  }
})

test("attributes are shown as their plugin writes them", () => {
  const texts = ["NVIDIA H100", 0, false, { version: "9.0.0" }].map(attributeText)
  assert.deepEqual(texts, ["NVIDIA H100", "0", "false", "9.0.0"])
})
