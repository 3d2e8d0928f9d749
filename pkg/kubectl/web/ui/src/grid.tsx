// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import type { Props } from "./app"
import { type Device, type Node, lookOf, usedPart } from "./cluster"
import { type Place, type Rows, cardOf, measures, move, rowsOf, seen } from "./layout"
import { freeOf, labelOf } from "./text"
import { nothing } from "./view"

interface GridProps {
  nodes: Node[]
  /** The devices that are not faint; undefined means all. */
  meant?: Set<Device>
  /** The devices that are lit, if some are. */
  lit?: Set<Device>
  view: Props["view"]
  show: Props["show"]
}

/** All nodes. Only those that are seen are in the document, and the one that has the focus. */
export function Grid({ nodes, meant, lit, view, show }: GridProps) {
  const area = useRef<HTMLDivElement>(null)
  const sheet = useRef<HTMLDivElement>(null)
  const [window, setWindow] = useState({ top: 0, width: 0, height: 0 })
  const [focus, setFocus] = useState({ node: "", path: "", moved: false })
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

  const m = measures[view.size]
  const rows = useMemo(() => rowsOf(nodes, window.width, view.size), [nodes, window.width, view.size])
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
    const node = nodes[next.node]!
    setFocus({ node: node.name, path: node.devices[next.device]?.path ?? "", moved: true })
    reveal(next.node)
  }

  const [first, end] = seen(rows, window.top - 200, window.top + window.height + 200)
  const indexes: number[] = []
  for (let i = first * rows.columns; i < Math.min(end * rows.columns, nodes.length); i++) indexes.push(i)
  if (at.node < (indexes[0] ?? 0) || at.node > (indexes.at(-1) ?? 0)) indexes.push(at.node)

  return (
    <div ref={area} class={"grid " + view.size} onKeyDown={onKey} tabIndex={-1}>
      <p id="keys" class="aloud">
        Arrow keys go from device to device, up and down from node to node, Enter selects.
      </p>
      <div ref={sheet} class="sheet" role="list" aria-label="Nodes" aria-describedby="keys" style={{ height: rows.tops.at(-1) + "px" }}>
        {window.width > 0 &&
          indexes.map((index) => (
            <Card
              key={nodes[index]!.name}
              node={nodes[index]!}
              index={index}
              count={nodes.length}
              x={(index % rows.columns) * (rows.card + m.between)}
              width={rows.card}
              y={rows.tops[Math.floor(index / rows.columns)]!}
              meant={meant}
              lit={lit}
              view={view}
              focus={at.node === index ? at.device : -1}
              onFocus={(path) => setFocus({ node: nodes[index]!.name, path, moved: false })}
              show={show}
            />
          ))}
      </div>
    </div>
  )
}

/** Where the focus is, or the first device where it was on what is no longer shown. */
function placeOf(nodes: Node[], focus: { node: string; path: string }): Place {
  const node = focus.node ? nodes.findIndex((node) => node.name === focus.node) : 0
  if (node < 0) return { node: 0, device: 0 }
  return { node, device: Math.max(0, nodes[node]!.devices.findIndex((d) => d.path === focus.path)) }
}

function revealRow(area: HTMLElement, rows: Rows, row: number) {
  const [top, bottom] = [rows.tops[row]!, rows.tops[row + 1]!]
  if (top < area.scrollTop) area.scrollTop = top
  else if (bottom > area.scrollTop + area.clientHeight) area.scrollTop = bottom - area.clientHeight
}

interface CardProps {
  node: Node
  index: number
  count: number
  x: number
  y: number
  width: number
  meant?: Set<Device>
  lit?: Set<Device>
  view: Props["view"]
  focus: number // the device that the tab key comes to, or -1
  onFocus: (path: string) => void
  show: Props["show"]
}

function Card({ node, index, count, x, y, width, meant, lit, view, focus, onFocus, show }: CardProps) {
  const card = cardOf(node, view.size)
  const style = { transform: `translate(${x}px, ${y}px)`, width: width + "px", height: card.height + "px" }
  const problems = node.problems?.join("; ")
  return (
    <section
      class="card"
      role="listitem"
      aria-label={`${node.name}, ${freeOf(node)}${problems ? ", " + problems : ""}`}
      aria-setsize={count}
      aria-posinset={index + 1}
      style={style}
    >
      <h2 title={problems ? `${node.name}: ${problems}` : node.name}>
        {problems && <span class="problem">!</span>}
        <button class="name" tabIndex={-1} aria-pressed={view.node === node.name} onClick={() => show({ ...nothing, node: node.name })}>
          {node.name}
        </button>
        {view.size === "large" && <span class="free">{freeOf(node).replace(/ of (\d+) free/, "/$1 free")}</span>}
      </h2>
      {card.groups.map((box, i) => (
        <div key={i} class="group" style={boxStyle(box)} />
      ))}
      {node.devices.map((device, i) => (
        <Tile
          key={device.path}
          device={device}
          style={boxStyle(card.tiles[i]!)}
          faint={meant !== undefined && !meant.has(device)}
          lit={lit !== undefined && lit.has(device)}
          selected={view.device?.node === node.name && view.device.path === device.path}
          reached={focus === i}
          onFocus={() => onFocus(device.path)}
          onClick={() => show({ ...nothing, device: { node: node.name, path: device.path } })}
        />
      ))}
    </section>
  )
}

const boxStyle = (box: { x: number; y: number; width: number; height: number }) => ({
  left: box.x + "px",
  top: box.y + "px",
  width: box.width + "px",
  height: box.height + "px",
})

interface TileProps {
  device: Device
  style: Record<string, string>
  faint: boolean
  lit: boolean
  selected: boolean
  reached: boolean
  onFocus: () => void
  onClick: () => void
}

function Tile({ device, style, faint, lit, selected, reached, onFocus, onClick }: TileProps) {
  const look = lookOf(device)
  return (
    <button
      class={`tile ${look}${faint ? " faint" : ""}${lit ? " lit" : ""}${selected ? " selected" : ""}`}
      style={style}
      tabIndex={reached ? 0 : -1}
      aria-label={labelOf(device)}
      aria-pressed={selected}
      title={labelOf(device)}
      onFocus={onFocus}
      onClick={onClick}
    >
      {look === "shared" && <i style={{ height: Math.max(12, usedPart(device) * 100) + "%" }} />}
    </button>
  )
}
