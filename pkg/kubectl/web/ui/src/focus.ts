// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Where the keyboard is while panels come and go.

import { useLayoutEffect, useRef } from "preact/hooks"

const find = (selector: string) => document.querySelector<HTMLElement>(selector)

/**
 * Takes the focus along with a panel, which a selector finds: to its heading when the keyboard opens it or when what
 * had the focus in it is gone, and back to what opened it when it closes. shows says what it shows; "" is nothing.
 */
export function useFocusOf(panel: string, shows: string) {
  const before = useRef(shows)
  const opener = useRef<HTMLElement | null>(null)
  useLayoutEffect(() => {
    const last = before.current
    before.current = shows
    if (last === shows) return
    const active = document.activeElement as HTMLElement | null
    const lost = !active || active === document.body // it was in what is gone
    const heading = find(panel + " h2")
    if (!shows) {
      const other = find("aside h2[tabindex]") ?? find('.grid [tabindex="0"]')
      const back = opener.current?.isConnected ? opener.current : other
      opener.current = null
      if (lost) back?.focus({ preventScroll: true })
    } else if (lost) {
      if (last) heading?.focus()
    } else if (!active.closest(panel)) {
      opener.current = active
      if (active.matches(":focus-visible")) heading?.focus()
    }
  }, [shows])
}

/**
 * Brings a panel into sight that has opened, or shows something else. On a phone it is below the map; elsewhere, a
 * question is above what it was clicked in. shows says what it shows; "" is nothing.
 */
export function useInSight(panel: string, shows: string) {
  const before = useRef(shows)
  useLayoutEffect(() => {
    if (shows && shows !== before.current) find(panel)?.scrollIntoView({ block: "start" })
    before.current = shows
  }, [shows])
}
