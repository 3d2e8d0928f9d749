// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// How the page queries its server: with the key, in a header that it sets itself. Cookies would go to
// all ports of this host, and an EventSource sends no header.

/** Where the key is kept. Each origin has its own, and the port is a part of it. */
const stored = "kubedevice-map-key"

const withKey = (key: string) => ({ Authorization: "Bearer " + key })

/** Takes the key out of the address, if it has one, for the one that is kept. */
export async function unlock() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token")
  if (!given) return
  history.replaceState(null, "", location.pathname + location.search)
  const answer = await fetch("key", { headers: withKey(given) })
  if (answer.ok) localStorage.setItem(stored, await answer.text())
}

/** What the server says when it refuses a request. */
export class Refusal extends Error {}

export async function get(path: string, signal?: AbortSignal): Promise<Response> {
  const answer = await fetch(path, { headers: withKey(localStorage.getItem(stored) ?? ""), signal })
  if (!answer.ok) throw new Refusal((await answer.text()).trim())
  return answer
}

/** Server-sent events that come in pieces of any size; the data of each is one line. */
export class Events {
  private rest = ""
  private kind = "message"

  /** Takes a piece, and returns the events that end in it. */
  take(piece: string): { kind: string; data: string }[] {
    const lines = piece.split("\n")
    lines[0] = this.rest + lines[0]
    this.rest = lines.pop()!
    const found = []
    for (const line of lines) {
      if (line.startsWith("event: ")) this.kind = line.slice("event: ".length)
      else if (line.startsWith("data: ")) found.push({ kind: this.kind, data: line.slice("data: ".length) })
      else if (line === "") this.kind = "message"
    }
    return found
  }
}

/** Follows the cluster for ever: what is sent, that the connection is lost, or why it is refused, which ends it. */
export async function follow(on: { message: (data: string) => void; lost: () => void; refused: (why: string) => void }) {
  for (;;) {
    try {
      const reader = (await get("stream")).body!.pipeThrough(new TextDecoderStream()).getReader()
      const events = new Events()
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        for (const { kind, data } of events.take(next.value)) {
          if (kind === "refused") throw new Refusal(data)
          on.message(data)
        }
      }
    } catch (error) {
      if (error instanceof Refusal) return on.refused(error.message)
    }
    on.lost()
    await new Promise((done) => setTimeout(done, 1000))
  }
}
