// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict"
import test from "node:test"
import { type Box, cardOf, fitting, measures, move, numbersOf, rowsOf, seen } from "../src/layout"
import { device, node } from "./fixture"

const overlap = (a: Box, b: Box) =>
  a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
const inside = (a: Box, b: Box) =>
  a.x >= b.x && a.y >= b.y && a.x + a.width <= b.x + b.width && a.y + a.height <= b.y + b.height

const shapes = {
  "pairs and fours": node("n", 8),
  "sixteen of them": node("n", 16),
  "no groups": { name: "n", devices: Array.from({ length: 20 }, (_, i) => device(`gpu/g${i}`)) },
  "a group with resources of its own": {
    name: "n", devices: [device(""), device("switch/0"), device("switch/0/link/a"), device("switch/0/link/b")],
  },
  "nothing": { name: "n", devices: [] },
}

for (const [name, shape] of Object.entries(shapes)) {
  for (const size of ["large", "small"] as const) {
    test(`each device has a place of its own in its node: ${name}, ${size}`, () => {
      const card = cardOf(shape, measures[size])
      assert.equal(card.tiles.length, shape.devices.length)
      card.tiles.forEach((tile, i) => {
        assert.ok(inside(tile, { x: 0, y: measures[size].header, width: measures[size].card, height: card.height }), `${i} is outside`)
        card.tiles.slice(0, i).forEach((other) => assert.ok(!overlap(tile, other), `${i} overlaps`))
        card.groups.forEach((group) => assert.ok(inside(tile, group) || !overlap(tile, group), `${i} is across an edge`))
      })
    })
  }
}

test("devices of one group are in its box", () => {
  const { tiles, groups } = cardOf(node("n", 8), measures.large)
  const of = groups.map((group) => tiles.flatMap((tile, i) => (inside(tile, group) ? [i] : [])).join())
  assert.deepEqual(of, ["0,1,2,3", "0,1", "2,3", "4,5,6,7", "4,5", "6,7"])
})

test("devices are as large as all nodes of a small cluster allow", () => {
  const tile = (nodes: number, width: number, height: number) => {
    const all = new Map(Array.from({ length: nodes }, (_, i) => ["n" + i, node("n" + i)]))
    const m = fitting(all, width, height)
    if (m !== measures.large) assert.ok(rowsOf([...all.values()], width, m).tops.at(-1)! <= height)
    return m.tile
  }
  assert.deepEqual([tile(0, 0, 0), tile(1, 354, 420), tile(2, 984, 850), tile(12, 984, 850), tile(48, 984, 850)],
    [26, 52, 78, 39, 26])
  assert.equal(tile(5000, 100_000, 100_000), 26)
})

test("larger devices have places of their own, too", () => {
  for (const shape of Object.values(shapes)) {
    const m = fitting(new Map([["n", shape]]), 5000, 5000)
    const card = cardOf(shape, m)
    card.tiles.forEach((tile, i) => {
      assert.ok(inside(tile, { x: 0, y: m.header, width: m.card, height: card.height }), `${i} is outside`)
      card.tiles.slice(0, i).forEach((other) => assert.ok(!overlap(tile, other), `${i} overlaps`))
    })
  }
})

test("only the rows that are seen are drawn", () => {
  const nodes = Array.from({ length: 5000 }, (_, i) => node("n" + i))
  const rows = rowsOf(nodes, 1000, measures.large)
  const high = rows.tops[1]!
  assert.deepEqual([rows.columns, rows.card, rows.tops.length], [5, 192, 1001])
  assert.deepEqual(seen(rows, 0, high), [0, 2])
  assert.deepEqual(seen(rows, 10 * high + 1, 12 * high - 1), [10, 12])
  assert.deepEqual(seen(rows, 999 * high, 5000 * high), [999, 1000])
  assert.deepEqual(seen(rows, -100, 10), [0, 1])
  assert.deepEqual(seen(rowsOf([], 1000, measures.large), 0, 500), [0, 0])
  assert.equal(rowsOf(nodes, 10, measures.large).columns, 1)
})

test("nodes that stay keep their numbers, and those that come take over others, except one", () => {
  const go = (names: string, last: Map<string, number>, spare = "") => numbersOf(names.split(""), last, spare)
  const first = go("abcd", new Map())
  assert.deepEqual([...first], [["a", 0], ["b", 1], ["c", 2], ["d", 3]])
  assert.deepEqual([...go("cdef", first)].sort(), [["c", 2], ["d", 3], ["e", 0], ["f", 1]])
  assert.deepEqual([...go("cdef", first, "a")].sort(), [["c", 2], ["d", 3], ["e", 1], ["f", 4]])
  assert.deepEqual([...go("wxyz", first)].map(([, number]) => number), [0, 1, 2, 3])
})

test("keys move from device to device, by the names of nodes, and from node to node", () => {
  const nodes = [node("a", 2), { name: "none", devices: [] }, node("b", 2), node("c", 1)]
  const go = (key: string, at: [number, number]) => {
    const to = move(key, { node: at[0], device: at[1] }, nodes, 2, 1)
    return to && [to.node, to.device]
  }
  const forth = [[0, -1], [0, 0], [0, 1], [1, -1], [2, -1], [2, 0], [2, 1], [3, -1], [3, 0]] as [number, number][]
  forth.forEach((at, i) => {
    assert.deepEqual(go("ArrowRight", at), forth[i + 1] ?? at)
    assert.deepEqual(go("ArrowLeft", at), forth[i - 1] ?? at)
  })
  assert.deepEqual(go("ArrowDown", [0, 1]), [2, 1])
  assert.deepEqual(go("ArrowDown", [0, -1]), [2, -1])
  assert.deepEqual(go("ArrowDown", [2, 1]), [2, 1])
  assert.deepEqual(go("ArrowUp", [2, 1]), [0, 1])
  assert.deepEqual(go("ArrowUp", [3, 0]), [1, -1])
  assert.deepEqual(go("PageDown", [0, 1]), [2, 1])
  assert.deepEqual(go("End", [0, 0]), [3, 0])
  assert.deepEqual(go("Home", [3, 0]), [0, -1])
  assert.equal(go("x", [0, 0]), undefined)
})
