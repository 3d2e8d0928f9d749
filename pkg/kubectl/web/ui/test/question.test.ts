// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict"
import test from "node:test"
import { Cluster } from "../src/cluster"
import { Events } from "../src/connection"
import { changeText, devicesAt, fewOf, placementText, proposalsOf, proposalsText, queryOf } from "../src/question"
import { node, pod } from "./fixture"

test("events come whole, however they are cut", () => {
  const text = 'retry: 1000\n\ndata: {"a":1}\n\n: beat\n\nevent: refused\ndata: too many\n\ndata: {"b":2}\n\n'
  const want = [["message", '{"a":1}'], ["refused", "too many"], ["message", '{"b":2}']]
  for (let size = 1; size <= text.length; size++) {
    const events = new Events()
    const got = []
    for (let at = 0; at < text.length; at += size) got.push(...events.take(text.slice(at, at + size)))
    assert.deepEqual(got.map((e) => [e.kind, e.data]), want, `pieces of ${size}`)
  }
})

test("changes are in words", () => {
  assert.equal(changeText("without:default/notebook"), "default/notebook ended")
  assert.equal(changeText("like:node-1"), "there were one more node like node-1")
  assert.equal(changeText("cordon:node-1"), "node-1 were cordoned")
  assert.equal(changeText("cordon:node-1/gpugrp1/0/gpu/gpu-3"), "gpu/gpu-3 of node-1 were cordoned")
})

test("a question has the pod and the changes in their order", () => {
  assert.equal(queryOf(pod("p"), []), "why?namespace=default&name=p")
  assert.equal(queryOf(pod("p"), ["like:n", "without:default/a"]),
    "whatif?namespace=default&name=p&change=like%3An&change=without%3Adefault%2Fa")
})

test("an answer lights the devices that are there, and names those of a node that is made up", () => {
  const cluster = new Cluster()
  cluster.apply({ reset: true, complete: true, nodes: [node("a", 4)] })
  const paths = ["gpugrp1/0/gpugrp0/0/gpu/gpu-0", "gpugrp1/0/gpugrp0/0/gpu/gpu-1"]
  const devices = paths.map((path) => ({ path, resource: "cards", quantity: 1 }))
  const at = (name: string) => ({ node: name, containers: [{ name: "main", devices }, { name: "other", devices }] })
  assert.deepEqual(devicesAt(cluster, at("a")).map((d) => d.id), ["gpu-0", "gpu-1"])
  assert.deepEqual(devicesAt(cluster, at("like-a-1")), [])
  assert.equal(placementText(cluster, at("a")), "a, with gpu-0, gpu-1")
  assert.equal(placementText(cluster, at("like-a-1")), "the new node, with gpu-0, gpu-1")
  assert.equal(placementText(cluster, { node: "a" }), "a")
})

test("weaker topology is proposed before pods are ended, and those before a node more and other constraints", () => {
  const smallest = {
    end: {
      pods: [{ namespace: "default", name: "a", priority: 0 }, { namespace: "ml", name: "b", priority: 7 }],
      placement: { node: "n1" },
    },
    add: { like: "n2", placement: { node: "like-n2-1" } },
    relax: [
      { text: "without the node selector zone=a", nodes: ["n3"] },
      { text: "without gpu/gpu-generate-topology", nodes: ["n1", "n3"], topology: true },
    ],
    complete: true,
  }
  assert.deepEqual(proposalsOf(smallest), [
    { text: "without gpu/gpu-generate-topology", nodes: ["n1", "n3"] },
    {
      text: "end default/a (priority 0), ml/b (priority 7)", nodes: ["n1"],
      changes: ["without:default/a", "without:ml/b"],
    },
    { text: "one more node like n2", nodes: ["the new one"], changes: ["like:n2"] },
    { text: "without the node selector zone=a", nodes: ["n3"] },
  ])
})

test("no proposals are announced as such, in words that say whether all was tried", () => {
  assert.deepEqual(proposalsOf({ complete: true }), [])
  assert.match(proposalsText({ complete: true }, 0), /^No pods to end, no node more/)
  assert.match(proposalsText({ complete: false }, 0), /^No change was found/)
  assert.equal(proposalsText({ complete: true }, 1), "It would fit with any one of these:")
  assert.equal(proposalsText({ complete: false }, 2), "It would fit with any one of these, the best that were found:")
})

test("of many names a few are shown", () => {
  assert.equal(fewOf(["a", "b", "c", "d"]), "a, b, c, d")
  assert.equal(fewOf(["a", "b", "c", "d", "e"]), "a, b, c and 2 more")
})
