// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import type { Props } from "./app"
import { age, reasonOf, requestsOf } from "./text"
import { nothing, shownPods } from "./view"

/** How many of the waiting pods are listed; a search finds the others. */
const most = 100

export function Waiting({ cluster, view, show }: Props) {
  const pods = shownPods(cluster, view)
  const now = Date.now()
  return (
    <section class="waiting" aria-labelledby="waiting">
      <h2 id="waiting">
        Waiting pods <span class="number">{cluster.pods.size.toLocaleString("en")}</span>
      </h2>
      {pods.length === 0 && (
        <p class="quiet">{cluster.pods.size > 0 ? "None with these words." : "No pod waits for devices."}</p>
      )}
      <ul>
        {pods.slice(0, most).map((pod) => (
          <li key={pod.uid}>
            <button
              class="pod"
              aria-pressed={view.pod === pod.uid}
              onClick={() => show({ ...nothing, pod: pod.uid })}
            >
              <span class="line">
                <b>
                  <span class="quiet">{pod.namespace}/</span>
                  {pod.name}
                </b>
                <time class="quiet" dateTime={pod.since}>
                  {age(pod.since, now)}
                </time>
              </span>
              {requestsOf(pod) && <span class="line quiet">requests {requestsOf(pod)}</span>}
              <span class="reason">{reasonOf(pod)}</span>
            </button>
          </li>
        ))}
      </ul>
      {pods.length > most && <p class="quiet">{pods.length - most} more: search for their names.</p>}
    </section>
  )
}
