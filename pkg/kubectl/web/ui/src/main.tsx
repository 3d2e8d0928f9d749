// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import { render } from "preact"
import { App, type Connection } from "./app"
import { Cluster, type Message } from "./cluster"
import { spoken } from "./text"
import { type View, readView, writeView } from "./view"

const cluster = new Cluster()
let view = readView(location.search)
let connection: Connection = "reading"
let said = ""
let received = 0 // when what is not drawn yet began to come

function show(change: Partial<View>) {
  view = { ...view, ...change }
  // The key of the address that was opened is not in it any more: the browser has a cookie.
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

const stream = new EventSource("stream")
stream.onmessage = (event) => {
  received ||= performance.now()
  said = spoken(cluster.apply(JSON.parse(event.data) as Message)) || said
  connection = cluster.complete ? "live" : "reading"
  draw()
}
stream.addEventListener("refused", (event) => {
  stream.close()
  connection = (event as MessageEvent<string>).data
  draw()
})
stream.onerror = () => {
  connection = "lost"
  draw()
}

setInterval(draw, 30_000) // ages
show({})
