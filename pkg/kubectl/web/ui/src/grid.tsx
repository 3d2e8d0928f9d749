// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import { Component } from "preact"
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import type { Props } from "./app"
import { type Device, type Node, lookOf, markOf, usedPart } from "./cluster"
import { type Measures, type Place, type Rows, cardOf, fitting, measures, move, numbersOf, rowsOf, seen } from "./layout"
import { closedBy, freeOf, labelOf } from "./text"
import { type Size, nothing } from "./view"

interface GridProps {
  nodes: Node[]
  /** All nodes of the cluster: by these, and not by what is searched for, devices are as large as they are. */
  all: ReadonlyMap<string, Node>
  /** The devices of a node that are not faint; undefined means all. */
  meant?: (node: Node) => Set<Device>
  /** The devices that are lit, if some are. */
  lit?: Set<Device>
  view: Props["view"]
  show: Props["show"]
}

/** All nodes. Only those that are seen are in the document, and the one that has the focus. */
export function Grid({ nodes, all, meant, lit, view, show }: GridProps) {
  const area = useRef<HTMLDivElement>(null)
  const sheet = useRef<HTMLDivElement>(null)
  const [window, setWindow] = useState({ top: 0, width: 0, height: 0 })
  const [focus, setFocus] = useState<Focus>({ node: "", path: "", moved: false })
  useLayoutEffect(() => {
    const element = area.current!
    const measure = () =>
      setWindow({ top: element.scrollTop, width: sheet.current!.clientWidth, height: element.clientHeight })
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    element.addEventListener("scroll", measure, { passive: true })
    return () => {
      observer.disconnect()
      element.removeEventListener("scroll", measure)
    }
  }, [])

  const m = view.size === "small" ? measures.small : fitting(all, window.width, window.height)
  const rows = useMemo(() => rowsOf(nodes, window.width, m), [nodes, window.width, m])
  const at = placeOf(nodes, focus)
  const reveal = (node: number) => revealRow(area.current!, rows, Math.floor(node / rows.columns))

  // What is selected elsewhere is brought into sight.
  const selected = view.device?.node ?? view.node ?? ""
  const lights = lit ? nodes.findIndex((node) => node.devices.some((d) => lit.has(d))) : -1
  useEffect(() => {
    const index = selected ? nodes.findIndex((node) => node.name === selected) : lights
    if (index >= 0 && window.width > 0) reveal(index)
  }, [selected, view.pod, lights >= 0, window.width > 0])
  // What an answer lights is another thing to see than what is selected.
  useEffect(() => {
    if (view.ask && lights >= 0) reveal(lights)
  }, [view.ask, view.changes, lights >= 0])

  useLayoutEffect(() => {
    if (focus.moved) area.current!.querySelector<HTMLElement>('[tabindex="0"]')?.focus({ preventScroll: true })
  }, [focus])

  const onKey = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(window.height / ((rows.tops.at(-1) ?? 1) / (rows.tops.length - 1))))
    const next = event.altKey || event.ctrlKey || event.metaKey ? undefined : move(event.key, at, nodes, rows.columns, page)
    if (!next) return
    event.preventDefault()
    setFocus({ ...focusAt(nodes, next), moved: true })
    reveal(next.node)
  }
  const onFocus = (event: FocusEvent) => {
    const place = placeOfElement(event.target)
    if (place) setFocus({ ...focusAt(nodes, place), moved: false })
  }
  const onClick = (event: MouseEvent) => {
    const place = placeOfElement(event.target)
    if (!place) return
    const { node, path } = focusAt(nodes, place)
    show(path === null ? { ...nothing, node } : { ...nothing, device: { node, path } })
  }

  const [first, end] = seen(rows, window.top - 200, window.top + window.height + 200)
  const indexes: number[] = []
  for (let i = first * rows.columns; i < Math.min(end * rows.columns, nodes.length); i++) indexes.push(i)
  if (at.node < (indexes[0] ?? 0)) indexes.unshift(at.node)
  else if (at.node > (indexes.at(-1) ?? 0)) indexes.push(at.node)
  const numbers = useRef(new Map<string, number>())
  numbers.current = numbersOf(indexes.map((i) => nodes[i]!.name), numbers.current, focus.node)

  return (
    <div ref={area} class={"grid " + view.size} onKeyDown={onKey} tabIndex={-1}>
      <p id="keys" class="aloud">
        Arrow keys go from device to device, by the names of the nodes, and up and down from node to node. Enter selects.
      </p>
      <div
        ref={sheet}
        class="sheet"
        role="list"
        aria-label="Nodes"
        aria-describedby="keys"
        style={{ height: rows.tops.at(-1) + "px" }}
        onFocusIn={onFocus}
        onClick={onClick}
        onMouseOver={explain}
        onMouseOut={explain}
      >
        {window.width > 0 &&
          indexes.map((index) => {
            const node = nodes[index]!
            return (
              <Card
                key={numbers.current.get(node.name)}
                node={node}
                size={view.size}
                measures={m}
                index={index}
                count={nodes.length}
                x={(index % rows.columns) * (rows.card + m.between)}
                width={rows.card}
                y={rows.tops[Math.floor(index / rows.columns)]!}
                meant={meant?.(node)}
                lit={lit}
                selected={view.node === node.name ? null : view.device?.node === node.name ? view.device.path : undefined}
                reached={at.node === index ? at.device : undefined}
              />
            )
          })}
      </div>
    </div>
  )
}

/** What the tab key comes to: a device by its path, or the name of a node. */
interface Focus {
  node: string
  path: string | null
  /** Whether a key has moved it, and the browser's focus has to follow. */
  moved: boolean
}

const focusAt = (nodes: Node[], at: Place) => {
  const node = nodes[at.node]!
  return { node: node.name, path: node.devices[at.device]?.path ?? null }
}

/** Where the focus is, or the first device where it was on what is no longer shown. */
function placeOf(nodes: Node[], focus: Focus): Place {
  const node = Math.max(0, focus.node ? nodes.findIndex((node) => node.name === focus.node) : 0)
  const { name, devices } = nodes[node]!
  if (focus.path === null && focus.node === name) return { node, device: -1 }
  const device = devices.findIndex((d) => d.path === focus.path)
  return { node, device: device < 0 ? Math.min(0, devices.length - 1) : device }
}

/** The place of what a pointer or the focus is on. */
function placeOfElement(target: EventTarget | null): Place | undefined {
  const button = target instanceof Element ? target.closest("button") : null
  const card = button?.closest<HTMLElement>(".card")
  if (!button || !card) return undefined
  return { node: Number(card.dataset.index), device: [...card.querySelectorAll("button")].indexOf(button) - 1 } // the name
}

/** Shows a device's label next to the pointer, while it is there: what has been drawn may become another device. */
function explain({ target, type }: MouseEvent) {
  if (!(target instanceof HTMLElement) || !target.matches(".tile")) return
  target.title = type === "mouseover" ? (target.ariaLabel ?? "") : ""
}

function revealRow(area: HTMLElement, rows: Rows, row: number) {
  const [top, bottom] = [rows.tops[row]!, rows.tops[row + 1]!]
  if (top < area.scrollTop) area.scrollTop = top
  else if (bottom > area.scrollTop + area.clientHeight) area.scrollTop = bottom - area.clientHeight
}

interface CardProps {
  node: Node
  size: Size
  measures: Measures
  index: number
  count: number
  x: number
  y: number
  width: number
  meant?: Set<Device>
  lit?: Set<Device>
  /** What is selected of the node: a device by its path, or null for the node itself. */
  selected?: string | null
  /** What the tab key comes to: a device, or -1 for the name. */
  reached?: number
}

/** A node. It is drawn again when something of it is another, and not whenever others are. */
class Card extends Component<CardProps> {
  override shouldComponentUpdate(next: CardProps) {
    return (Object.keys(next) as (keyof CardProps)[]).some((prop) => next[prop] !== this.props[prop])
  }

  override render({ node, size, measures, index, count, x, y, width, meant, lit, selected, reached }: CardProps) {
    const card = cardOf(node, measures)
    const problems = node.problems?.join("; ")
    const free = closedBy(node).join(", ") || freeOf(node)
    return (
      <section
        class="card"
        role="listitem"
        aria-label={`${node.name}, ${free}${problems ? ", " + problems : ""}`}
        aria-setsize={count}
        aria-posinset={index + 1}
        data-index={index}
        style={`left:${x}px;top:${y}px;width:${width}px;height:${card.height}px`}
      >
        <h2 title={problems ? `${node.name}: ${problems}` : node.name}>
          {problems && <span class="problem">!</span>}
          <button class="name" tabIndex={reached === -1 ? 0 : -1} aria-pressed={selected === null || undefined}>
            {node.name}
          </button>
          {size === "large" && <span class="free">{free.replace(/ of (\d+) free/, "/$1 free")}</span>}
        </h2>
        {card.styles.groups.map((style, i) => (
          <div key={i} class="group" style={style} />
        ))}
        {node.devices.map((device, i) => (
          <Tile
            key={device.path}
            device={device}
            node={node}
            style={card.styles.tiles[i]!}
            faint={meant !== undefined && !meant.has(device)}
            lit={lit !== undefined && lit.has(device)}
            selected={selected === device.path}
            reached={reached === i}
          />
        ))}
      </section>
    )
  }
}

interface TileProps {
  device: Device
  node: Node
  style: string
  faint: boolean
  lit: boolean
  selected: boolean
  reached: boolean
}

/** How much of a shared device is in use, in eighths: neither nothing nor all. */
const eighths = (device: Device) => Math.min(7, Math.max(1, Math.round(usedPart(device) * 8)))

function Tile({ device, node, style, faint, lit, selected, reached }: TileProps) {
  const look = lookOf(device)
  const classes = [
    "tile", look, look === "shared" && "of8-" + eighths(device), markOf(device),
    faint && "faint", lit && "lit", selected && "selected",
  ]
  return (
    <button
      class={classes.filter(Boolean).join(" ")}
      style={style}
      tabIndex={reached ? 0 : -1}
      aria-label={labelOf(device, node)}
      aria-pressed={selected || undefined}
    />
  )
}
