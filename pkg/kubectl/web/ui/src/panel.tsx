// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import type { ComponentChildren } from "preact"

/** A part of the side that opens and closes: what is selected, or a question. */
export function Panel({ kind, title, under, close, children }: {
  kind: "selection" | "whatif"
  title: string
  under?: ComponentChildren
  close: () => void
  children: ComponentChildren
}) {
  return (
    <section class={"details " + kind} aria-label={title}>
      <h2 tabIndex={-1}>{title}</h2>
      <button class="plain close" aria-label={"Close " + title} title="Close (Escape)" onClick={close}>
        ×
      </button>
      {under && <p class="quiet">{under}</p>}
      {children}
    </section>
  )
}
