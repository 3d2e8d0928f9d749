// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import { useLayoutEffect, useRef, useState } from "preact/hooks"
import { type Cluster, type State, type Unread, states } from "./cluster"
import { Details } from "./details"
import { useFocusOf, useInSight } from "./focus"
import { Grid } from "./grid"
import { type Answer, devicesAt, queryOf, useAnswer } from "./question"
import { stateNames, unreadText } from "./text"
import { type View, count, isFiltered, noQuestion, nothing, shown } from "./view"
import { Waiting } from "./waiting"
import { WhatIf } from "./whatif"

/** "reading" before there is a whole snapshot, "live", "lost", or why the server refuses. */
export type Connection = "reading" | "live" | "lost" | (string & {})

export interface Props {
  cluster: Cluster
  view: View
  show: (change: Partial<View>) => void
}

export function App({ cluster, view, show, connection, said }: Props & { connection: Connection; said: string }) {
  const found = shown(cluster, view)
  const [again, askAgain] = useState(0)
  const asked = view.ask ? cluster.pods.get(view.ask) : undefined
  const answer = useAnswer(asked ? queryOf(asked, view.changes) : "", again)
  const lit = litBy(cluster, view, answer)
  const search = useRef<HTMLInputElement>(null)
  const escape = useRef({})
  escape.current = asked ? noQuestion : nothing // the upper panel first
  // Before the page is painted: a user who sees it can type.
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement
      if (typing || event.altKey || event.ctrlKey || event.metaKey) return
      if (event.key === "/") {
        event.preventDefault()
        search.current?.focus()
      } else if (event.key === "Escape") show(escape.current)
    }
    addEventListener("keydown", onKey)
    return () => removeEventListener("keydown", onKey)
  }, [])
  const selection = view.pod ?? (view.device ? `${view.device.node}/${view.device.path}` : (view.node ?? ""))
  const question = asked ? asked.uid + view.changes : ""
  useFocusOf(".selection", selection)
  useFocusOf(".whatif", question)
  useInSight(".selection", selection)
  useInSight(".whatif", question)
  return (
    <>
      <header>
        <h1>Devices{cluster.name && ` of ${cluster.name}`}</h1>
        <div class="search">
          <input
            ref={search}
            type="search"
            aria-label="Search nodes, devices, models, pods"
            aria-keyshortcuts="/"
            placeholder="Search nodes, devices, models, pods"
            value={view.search}
            onInput={(event) => show({ search: event.currentTarget.value })}
          />
          <kbd aria-hidden="true">/</kbd>
        </div>
        <Legend cluster={cluster} view={view} show={show} />
        <button
          class="plain"
          aria-pressed={view.size === "small"}
          onClick={() => show({ size: view.size === "small" ? "large" : "small" })}
        >
          Compact
        </button>
        <State connection={connection} unread={cluster.unread} />
      </header>
      <main>
        <p class="found" role="status">
          {cluster.names.length > 0 && foundText(cluster, view, found)}
        </p>
        {found.nodes.length > 0 ? (
          <Grid nodes={found.nodes} all={cluster.nodes} meant={lit ? () => lit : found.meant} lit={lit} view={view} show={show} />
        ) : (
          <Empty cluster={cluster} connection={connection} show={show} />
        )}
      </main>
      <aside aria-label="Details and waiting pods">
        {asked && (
          <WhatIf pod={asked} answer={answer} again={() => askAgain(again + 1)} cluster={cluster} view={view} show={show} />
        )}
        <Details cluster={cluster} view={view} show={show} />
        <Waiting cluster={cluster} view={view} show={show} />
      </aside>
      <p class="aloud" role="log" aria-live="polite">
        {said}
      </p>
    </>
  )
}

/** The devices that a question is answered with, or else those of the selected pod. */
function litBy(cluster: Cluster, view: View, answer?: Answer) {
  const placed = answer?.placements?.fits ? answer.placements.pods?.[0] : undefined
  const devices = placed
    ? devicesAt(cluster, placed)
    : view.pod
      ? cluster.devicesOf(view.pod).map((found) => found.device)
      : []
  return devices.length > 0 ? new Set(devices) : undefined
}

function foundText(cluster: Cluster, view: View, found: ReturnType<typeof shown>): string {
  const words = (n: number, what: string) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`
  const text = `${words(found.nodes.length, "node")}, ${words(found.devices, "device")}`
  return isFiltered(view) ? `${text} of ${words(cluster.names.length, "node")}` : text
}

/** What the legend has even where no device is like that. */
const always: readonly State[] = ["free", "shared", "whole", "unhealthy"]

/** What the drawings of devices mean, how many there are, and by a click only those. */
function Legend({ cluster, view, show }: Props) {
  const { counts, kinds } = count(cluster, view.kind)
  const toggle = (state: State) =>
    show({ states: states.filter((s) => view.states.includes(s) !== (s === state)) })
  return (
    <div class="legend" role="group" aria-label="Show only devices that are">
      {states
        .filter((state) => always.includes(state) || counts[state] > 0 || view.states.includes(state))
        .map((state) => (
          <button key={state} class="chip" aria-pressed={view.states.includes(state)} onClick={() => toggle(state)}>
            <span class={"tile " + state} aria-hidden="true" />
            <b>{counts[state].toLocaleString("en")}</b> {stateNames[state]}
          </button>
        ))}
      {kinds.length > 1 && (
        <select
          aria-label="Kind of devices"
          value={view.kind}
          onChange={(event) => show({ kind: event.currentTarget.value })}
        >
          <option value="">all kinds</option>
          {kinds.map((kind) => (
            <option key={kind} value={kind}>
              {kind}
            </option>
          ))}
        </select>
      )}
    </div>
  )
}

function State({ connection, unread }: { connection: Connection; unread?: Unread }) {
  const texts: Record<string, string> = { reading: "reading…", live: "live", lost: "not connected" }
  const live = connection === "live" && !unread
  return (
    <span class={"state " + (live ? "live" : "off")} role="status">
      {connection === "live" && unread ? unreadText(unread) : (texts[connection] ?? connection)}
    </span>
  )
}

function Empty({ cluster, connection, show }: { cluster: Cluster; connection: Connection; show: Props["show"] }) {
  if (cluster.names.length > 0) {
    return (
      <p class="empty">
        Nothing in the cluster is like that.{" "}
        <button class="link" onClick={() => show({ search: "", states: [], kind: "" })}>
          Show all
        </button>
      </p>
    )
  }
  switch (connection) {
    case "reading":
      return <p class="empty">Reading the cluster…</p>
    case "live":
      return <p class="empty">No node publishes devices.</p>
    case "lost":
      return <p class="empty">Not connected. Check that "kubectl device web" runs, and open the address that it printed.</p>
    default:
      return <p class="empty">{connection}</p>
  }
}
