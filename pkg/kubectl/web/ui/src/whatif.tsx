// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import type { Props } from "./app"
import type { Cluster, Pod } from "./cluster"
import { Panel } from "./panel"
import {
  type Answer, type Change, type Smallest, type Why, changeText, fewOf, placementText, proposalsOf, proposalsText, queryOf,
  useAnswer,
} from "./question"
import { reasonOf } from "./text"
import { type View, noQuestion } from "./view"

/** Why a pod waits, and what would let it run: by a click, with what would follow. */
export function WhyItWaits({ pod, show }: { pod: Pod; show: Props["show"] }) {
  // It is queried again when the scheduler has another reason.
  const answer = useAnswer(queryOf(pod, []), pod.message)
  return (
    <>
      <h3>Why the pod waits</h3>
      {!answer?.why && <p class="reason">{reasonOf(pod)}</p>}
      {!answer && <p class="quiet">Querying the scheduler…</p>}
      {answer?.problem && <NoAnswer problem={answer.problem} />}
      {answer?.why && <Reasons why={answer.why} try={(changes) => show({ ask: pod.uid, changes })} />}
    </>
  )
}

function NoAnswer({ problem }: { problem: string }) {
  return (
    <p class="reason" role="status">
      No scheduler answers: {problem}
    </p>
  )
}

/** The reasons of the nodes, and the smallest changes. */
function Reasons({ why, try: attempt }: { why: Why; try?: (changes: Change[]) => void }) {
  const fits = why.fits?.length ?? 0
  return (
    <>
      <p>
        {why.problem
          ? why.problem + "."
          : fits > 0
            ? `It fits ${fits} of ${why.nodes} nodes, and will be bound soon.`
            : `It fits none of ${why.nodes} nodes.`}
      </p>
      <ul class="reasons">
        {why.reasons?.map((reason) => (
          <li key={reason.text}>
            <b title={reason.nodes.join(", ")}>{reason.nodes.length}</b> {reason.text}
          </li>
        ))}
      </ul>
      {why.smallest && <Proposals smallest={why.smallest} attempt={attempt} />}
    </>
  )
}

/** The smallest changes, with where the pod would go. */
function Proposals({ smallest, attempt }: { smallest: Smallest; attempt?: (changes: Change[]) => void }) {
  const proposals = proposalsOf(smallest)
  return (
    <>
      <p class="quiet">{proposalsText(smallest, proposals.length)}</p>
      <ul class="changes">
        {proposals.map(({ text, nodes, changes }) => (
          <li key={text}>
            {changes ? <Try changes={changes} attempt={attempt}>{text}</Try> : text}{" "}
            <span class="quiet">goes to {fewOf(nodes)}</span>
          </li>
        ))}
      </ul>
    </>
  )
}

function Try({ changes, attempt, children }: {
  changes: Change[]
  attempt?: (changes: Change[]) => void
  children: ComponentChildren
}) {
  if (!attempt) return <>{children}</>
  return (
    <button class="link" title="Show where it would go" onClick={() => attempt(changes)}>
      {children}
    </button>
  )
}

/** What could be otherwise: buttons that add a change to the question. */
export function Suppose({ changes, cluster, view, show }: Props & { changes: Change[] }) {
  const pods = [...cluster.pods.values()].filter((pod) => pod.state === "Waiting")
  const [chosen, choose] = useState("")
  const pod = pods.find((p) => p.uid === (chosen || view.ask)) ?? pods[0]
  if (!pod) return null
  const before = view.ask === pod.uid ? view.changes : []
  const label = (p: Pod) => `${p.namespace}/${p.name}`
  return (
    <>
      <h3>What if</h3>
      <p>
        Where would{" "}
        {pods.length === 1 ? (
          <b>{label(pod)}</b>
        ) : (
          <select aria-label="Pod that waits" value={pod.uid} onChange={(event) => choose(event.currentTarget.value)}>
            {pods.slice(0, 200).map((p) => (
              <option key={p.uid} value={p.uid}>
                {label(p)}
              </option>
            ))}
          </select>
        )}{" "}
        go, if
      </p>
      <ul class="changes">
        {changes.map((change) => (
          <li key={change}>
            <button
              class="link"
              disabled={before.includes(change)}
              onClick={() => show({ ask: pod.uid, changes: [...before, change] })}
            >
              {changeText(change)}?
            </button>
          </li>
        ))}
      </ul>
    </>
  )
}

/** The question, and the scheduler's answer. */
export function WhatIf({ pod, answer, again, cluster, view, show }: Props & {
  pod: Pod
  answer?: Answer
  again: () => void
}) {
  return (
    <Panel kind="whatif" title={`What if: ${pod.namespace}/${pod.name}`} close={() => show(noQuestion)}>
      <ul class="changes">
        {view.changes.map((change) => (
          <li key={change}>
            {changeText(change)}{" "}
            <button class="link" aria-label={`Remove: ${changeText(change)}`} onClick={() => show(without(view, change))}>
              Remove
            </button>
          </li>
        ))}
      </ul>
      <div role="status">
        {!answer && <p class="quiet">Querying the scheduler…</p>}
        {answer?.problem && <NoAnswer problem={answer.problem} />}
        {answer?.placements && <Answered placements={answer.placements} pod={pod} cluster={cluster} />}
      </div>
      <p class="quiet">
        Nothing is changed: the scheduler tries it on a copy.{" "}
        <button class="link" onClick={again}>
          Ask again
        </button>
      </p>
    </Panel>
  )
}

function Answered({ placements, pod, cluster }: {
  placements: NonNullable<Answer["placements"]>
  pod: Pod
  cluster: Cluster
}) {
  const at = placements.pods?.[0]
  if (placements.fits && at) return <p class="verdict">It would go to {placementText(cluster, at)}.</p>
  return (
    <>
      <p class="verdict">{pod.name} would still wait.</p>
      {placements.why && <Reasons why={placements.why} />}
    </>
  )
}

/** A view without one of its changes; without the last one, there is no question. */
function without(view: View, change: Change): Partial<View> {
  const changes = view.changes.filter((other) => other !== change)
  return { changes, ask: changes.length > 0 ? view.ask : undefined }
}
