// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import { render } from "preact"
import { App, type Connection } from "./app"
import { Cluster, type Message } from "./cluster"
import { follow, unlock } from "./connection"
import { spoken } from "./text"
import { type View, readView, writeView } from "./view"

const cluster = new Cluster()
let view = readView(location.search)
let connection: Connection = "reading"
let said = ""
let received = 0 // when what is not drawn yet began to come

function show(change: Partial<View>) {
  view = { ...view, ...change }
  history.replaceState(null, "", location.pathname + writeView(view))
  draw()
}

let waiting = false

/** Draws once before the browser paints next, however often it is called. */
function draw() {
  if (waiting) return
  waiting = true
  requestAnimationFrame(() => {
    waiting = false
    render(<App cluster={cluster} view={view} show={show} connection={connection} said={said} />, document.getElementById("app")!)
    if (!received || cluster.names.length === 0) return
    const start = received
    received = 0
    setTimeout(() => timeline(start)) // after the paint
  })
}

/** Leaves in the browser's timeline how long it took until all was drawn that began to come at start. */
function timeline(start: number) {
  if (performance.getEntriesByName("kubedevice-first").length === 0) performance.mark("kubedevice-first")
  if (!cluster.complete) return
  if (performance.getEntriesByName("kubedevice-complete").length === 0) performance.mark("kubedevice-complete")
  performance.clearMeasures("kubedevice-update") // the last one stays
  performance.measure("kubedevice-update", { start })
}

function lost(how: Connection) {
  connection = how
  draw()
}

function message(data: string) {
  received ||= performance.now()
  said = spoken(cluster.apply(JSON.parse(data) as Message)) || said
  connection = cluster.complete ? "live" : "reading"
  draw()
}

unlock().then(() => follow({ message, lost: () => lost("lost"), refused: lost }))
// An address with another key that is opened in this tab loads nothing by itself.
addEventListener("hashchange", () => location.reload())

setInterval(draw, 30_000) // ages
show({})
