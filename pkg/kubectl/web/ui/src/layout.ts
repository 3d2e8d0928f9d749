// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Where everything is drawn, in CSS pixels, before anything is: so only what is seen needs to be.

import type { Device, Node } from "./cluster"
import type { Size } from "./view"

/** The measures of a size. */
export interface Measures {
  card: number // the least width of a node
  header: number // of a node, the height
  inset: number // between the edge of a node and what is in it
  tile: number // the side of a device
  gap: number // between devices, and between groups
  pad: number // between the edge of a group and what is in it
  between: number // nodes
}

export const measures: Record<Size, Measures> = {
  large: { card: 160, header: 30, inset: 10, tile: 26, gap: 4, pad: 4, between: 10 },
  small: { card: 88, header: 18, inset: 5, tile: 13, gap: 2, pad: 2, between: 5 },
}

/** How much larger devices may be than they are in measures, where few nodes leave space. */
const factors = [3, 2.5, 2, 1.5]

/** The measures of large nodes with larger devices, in the order of factors. */
const larger: Measures[] = factors.map((factor) => {
  const { card, header, inset, tile, gap, pad, between } = measures.large
  const times = (n: number) => Math.round(n * factor)
  return {
    card: times(card - 2 * inset) + 2 * inset, header, inset, tile: times(tile), gap: times(gap), pad: times(pad), between,
  }
})

/** With more nodes than these, devices are not larger. */
const fewNodes = 60

/** The measures with the largest devices with which all nodes are in sight, or those of large nodes. */
export function fitting(all: ReadonlyMap<string, Node>, width: number, height: number): Measures {
  if (all.size > fewNodes) return measures.large
  const nodes = [...all.values()]
  const fits = (m: Measures) => m.card <= width && rowsOf(nodes, width, m).tops.at(-1)! <= height
  return larger.find(fits) ?? measures.large
}

export interface Box {
  x: number
  y: number
  width: number
  height: number
}

/** A group of devices with its box, or a device. */
interface Branch {
  name: string
  index?: number // of the device
  branches: Branch[]
}

/** Where the devices of a node are, in their order, and the boxes of its groups, outer ones first. */
export interface Card {
  height: number
  tiles: Box[]
  groups: Box[]
  /** The same as styles: nodes are many, and shapes few. */
  styles: { tiles: string[]; groups: string[] }
}

const styleOf = (box: Box) => `left:${box.x}px;top:${box.y}px;width:${box.width}px;height:${box.height}px`

/** The tree of groups: each level and its instance are one branch. */
function treeOf(devices: Device[]): Branch {
  const root: Branch = { name: "", branches: [] }
  devices.forEach((device, index) => {
    const parts = device.path.split("/")
    let at = root
    for (let i = 0; i + 1 < parts.length; i += 2) {
      const name = parts[i] + "/" + parts[i + 1]
      let next = at.branches.find((branch) => branch.name === name)
      if (!next) at.branches.push((next = { name, branches: [] }))
      at = next
    }
    at.index = index
  })
  return root
}

/** Places a branch with its upper left corner at 0, 0, not wider than it may be if that can be. */
function place(branch: Branch, most: number, m: Measures, pad: number): { box: Box; tiles: [number, Box][]; groups: Box[] } {
  const { index, branches } = branch
  if (index !== undefined && branches.length === 0) {
    const box = { x: 0, y: 0, width: m.tile, height: m.tile }
    return { box, tiles: [[index, box]], groups: [] }
  }
  const tiles: [number, Box][] = []
  const groups: Box[] = []
  let [x, y, width, height] = [pad, pad, 0, 0]
  // A group with resources of its own is a device, too.
  const own = index === undefined ? [] : [{ name: "", index, branches: [] }]
  for (const child of [...own, ...branches]) {
    const placed = place(child, most - 2 * pad, m, m.pad)
    if (x > pad && x + placed.box.width + pad > most) {
      x = pad
      y = height - pad + m.gap
    }
    const moved = (box: Box) => ({ ...box, x: box.x + x, y: box.y + y })
    tiles.push(...placed.tiles.map(([index, box]): [number, Box] => [index, moved(box)]))
    if (child.branches.length > 0) groups.push(moved(placed.box))
    groups.push(...placed.groups.map(moved))
    x += placed.box.width + m.gap
    width = Math.max(width, x - m.gap + pad)
    height = Math.max(height, y + placed.box.height + pad)
  }
  return { box: { x: 0, y: 0, width, height }, tiles, groups }
}

const cards = new Map<string, Card>() // by the side of a device and paths
const known = new WeakMap<Measures, WeakMap<Node, Card>>()

/** The card of a node. Nodes whose devices are in the same groups share one. */
export function cardOf(node: Node, m: Measures): Card {
  let of = known.get(m)
  if (!of) known.set(m, (of = new WeakMap()))
  let card = of.get(node)
  if (card) return card
  const key = m.tile + "\n" + node.devices.map((d) => d.path).join("\n")
  card = cards.get(key)
  if (!card) {
    const placed = place(treeOf(node.devices), m.card - 2 * m.inset, m, 0)
    const moved = (box: Box) => ({ ...box, x: box.x + m.inset, y: box.y + m.header })
    const tiles = placed.tiles.sort(([a], [b]) => a - b).map(([, box]) => moved(box))
    const groups = placed.groups.map(moved)
    card = {
      height: m.header + placed.box.height + m.inset, tiles, groups,
      styles: { tiles: tiles.map(styleOf), groups: groups.map(styleOf) },
    }
    if (cards.size > 1000) cards.clear() // shapes of nodes that are gone
    cards.set(key, card)
  }
  of.set(node, card)
  return card
}

/** Rows of nodes: each is as high as its highest node. */
export interface Rows {
  columns: number
  /** The width of a node, so that a row fills the width there is. */
  card: number
  /** Where each row begins, and where the last one ends. */
  tops: number[]
}

export function rowsOf(nodes: readonly Node[], width: number, m: Measures): Rows {
  const columns = Math.max(1, Math.floor((width + m.between) / (m.card + m.between)))
  const tops = [0]
  for (let i = 0; i < nodes.length; i += columns) {
    let height = 0
    for (let j = i; j < Math.min(i + columns, nodes.length); j++) height = Math.max(height, cardOf(nodes[j]!, m).height)
    tops.push(tops.at(-1)! + height + m.between)
  }
  return { columns, card: Math.max(m.card, Math.floor((width + m.between) / columns) - m.between), tops }
}

/** The rows that are seen at least in part between two heights: from the first to before the last. */
export function seen(rows: Rows, from: number, to: number): [number, number] {
  const count = rows.tops.length - 1
  const first = Math.min(search(rows.tops, from), Math.max(0, count - 1))
  return [first, Math.min(search(rows.tops, to) + 1, count)]
}

/** The last row that begins at or above a height. */
function search(tops: number[], at: number): number {
  let [low, high] = [0, tops.length - 1]
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if (tops[middle]! <= at) low = middle
    else high = middle - 1
  }
  return low
}

/**
 * Gives each name a number: who had one keeps it, and who comes takes one of those who are gone, but not that of the
 * name to spare. So what is drawn for one can be made over for another, which costs less than to make it.
 */
export function numbersOf(names: string[], last: Map<string, number>, spare: string): Map<string, number> {
  const numbers = new Map<string, number>()
  for (const name of names) if (last.has(name)) numbers.set(name, last.get(name)!)
  const free = [...last].filter(([name]) => !numbers.has(name) && name !== spare).map(([, number]) => number)
  let next = Math.max(-1, ...last.values()) + 1
  for (const name of names) if (!numbers.has(name)) numbers.set(name, free.shift() ?? next++)
  return numbers
}

/** What the keyboard is at: the index of a node among those that are shown, and that of a device in it; -1 is its name. */
export interface Place {
  node: number
  device: number
}

/** Where a key moves the focus, or undefined for keys that do not. */
export function move(key: string, at: Place, nodes: readonly Node[], columns: number, page: number): Place | undefined {
  const end = nodes.length - 1
  const last = (node: number) => nodes[node]!.devices.length - 1
  const to = (node: number): Place => {
    const index = Math.max(0, Math.min(node, end))
    return { node: index, device: Math.min(at.device, last(index)) }
  }
  switch (key) {
    case "ArrowRight":
      if (at.device < last(at.node)) return { node: at.node, device: at.device + 1 }
      return at.node < end ? { node: at.node + 1, device: -1 } : at
    case "ArrowLeft":
      if (at.device >= 0) return { node: at.node, device: at.device - 1 }
      return at.node > 0 ? { node: at.node - 1, device: last(at.node - 1) } : at
    case "ArrowDown":
      return at.node + columns <= end ? to(at.node + columns) : at
    case "ArrowUp":
      return at.node - columns >= 0 ? to(at.node - columns) : at
    case "PageDown":
      return to(at.node + columns * page)
    case "PageUp":
      return to(at.node - columns * page)
    case "Home":
      return { node: 0, device: -1 }
    case "End":
      return { node: end, device: last(end) }
  }
}
