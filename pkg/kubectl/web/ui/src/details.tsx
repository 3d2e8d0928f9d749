// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from "preact/hooks"
import type { Props } from "./app"
import { type Attribute, type Device, type Measured, type Node, type Taint, cordons, isMask, lookOf, markOf, wholeOf } from "./cluster"
import { get } from "./connection"
import { Panel } from "./panel"
import {
  age, attributeText, closedBy, freeOf, groupOf, human, marksOf, memoryUsedOf, quantities, reasonOf, requestsOf, stateNames, taintText, useOf, wrongWith,
} from "./text"
import { nothing } from "./view"
import { Suppose, WhyItWaits } from "./whatif"

/** What is selected, with its events: a device with its pods, a node, or a pod with its devices. */
export function Details({ cluster, view, show }: Props) {
  const close = () => show(nothing)
  const shared = { cluster, view, show, close }
  if (view.device) {
    const { node: name, path } = view.device
    const [node, device] = [cluster.nodes.get(name), cluster.device(name, path)]
    if (!node || !device) return cluster.complete ? <Missing what={`${path || "the device"} of ${name}`} close={close} /> : null
    return <OfDevice key={name + "/" + path} node={node} device={device} {...shared} />
  }
  if (view.node) {
    const node = cluster.nodes.get(view.node)
    if (!node) return cluster.complete ? <Missing what={`the node ${view.node}`} close={close} /> : null
    return <OfNode key={view.node} node={node} {...shared} />
  }
  if (view.pod) return <OfPod key={view.pod} uid={view.pod} {...shared} />
  return null
}

type Selected = Props & { close: () => void }

function Missing({ what, close }: { what: string; close: () => void }) {
  return (
    <Panel kind="selection" title="Not there" close={close}>
      <p>The cluster does not have {what} any more.</p>
    </Panel>
  )
}

function OfNode({ node, cluster, view, show, close }: Selected & { node: Node }) {
  const used = memoryUsedOf(node.devices)
  return (
    <Panel kind="selection" title={node.name} under={[freeOf(node), ...closedBy(node), ...marksOf(node)].join(" · ")} close={close}>
      {node.problems?.map((problem) => <p class="reason" key={problem}>{problem}</p>)}
      {used && <p>Memory used: {used}</p>}
      <Suppose changes={["cordon:" + node.name, "like:" + node.name]} cluster={cluster} view={view} show={show} />
      <Events queries={["node=" + encodeURIComponent(node.name)]} version={freeOf(node)} of="the node" />
    </Panel>
  )
}

function OfDevice({ node, device, cluster, view, show, close }: Selected & { node: Node; device: Device }) {
  const group = groupOf(device, node)
  const pods = new Map(device.holders?.map((h) => [h.uid, h]))
  const queries = [
    "node=" + encodeURIComponent(node.name),
    ...[...pods.values()].slice(0, 4).map((h) => podQuery(h.namespace, h.uid)),
  ]
  const mark = markOf(device)
  const under = (
    <>
      {device.model || device.kind}
      <br />
      {group && <span title={device.path}>{group} · </span>}
      <button class="link" onClick={() => show({ ...nothing, node: node.name })}>
        {node.name}
      </button>
    </>
  )
  return (
    <Panel kind="selection" title={device.id || device.kind} under={under} close={close}>
      <p class="use">
        <span class={`tile ${lookOf(device)} ${mark ?? ""}`} aria-hidden="true" />
        <span>
          {useOf(device)}
          {mark && ", " + stateNames[mark]}
          {wrongWith(device)}
          {closedBy(node).length > 0 && `; its node is ${closedBy(node).join(" and ")}`}
        </span>
      </p>
      {node.problems?.map((problem) => <p class="reason" key={problem}>{problem}</p>)}
      <h3>Resources</h3>
      <table>
        <tbody>
          {device.resources.map((r) => (
            <tr key={r.name}>
              <th scope="row">{r.name}</th>
              <td>{isMask(r.name) ? "0x" + r.allocatable.toString(16) : `${human(r.used)} of ${human(wholeOf(r))}`}</td>
              <td class="bar">
                {!isMask(r.name) && <meter aria-label={r.name + " in use"} max={Math.max(1, wholeOf(r))} value={r.used} />}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {device.measured && <Used measured={device.measured} />}
      {device.resources.some((r) => r.usedOutside) && <p class="quiet">Some of it is used outside of Kubernetes.</p>}
      {device.attributes && <Attributes attributes={device.attributes} />}
      {device.taints && <Taints taints={device.taints} />}
      <h3>Pods</h3>
      {pods.size === 0 && <p class="quiet">No pod has it.</p>}
      <ul>
        {device.holders?.map((h) => (
          <li key={h.uid + h.container}>
            <button class="pod" onClick={() => show({ ...nothing, pod: h.uid })}>
              <b>
                <span class="quiet">{h.namespace}/</span>
                {h.pod}
              </b>
              <span class="line quiet">
                {h.container}: {quantities(h.resources)}
                {h.state === "Bound" && " (bound)"}
                {typeof h.memoryUsed === "number" && `, uses ${human(h.memoryUsed)}`}
              </span>
            </button>
          </li>
        ))}
      </ul>
      <Suppose
        changes={[
          ...(mark === "cordoned" ? [] : [`cordon:${node.name}/${device.path}`]),
          "cordon:" + node.name,
          "like:" + node.name,
        ]}
        cluster={cluster}
        view={view}
        show={show}
      />
      <Events queries={queries} version={versionOf(device)} of="its node and pods" />
    </Panel>
  )
}

/** How much of a device's memory programs really use, and since when that is known. */
function Used({ measured }: { measured: Measured }) {
  const { time, memoryUsed, memoryTotal, memoryUnowned } = measured
  return (
    <>
      <h3>Memory that programs use</h3>
      <table>
        <tbody>
          <tr>
            <th scope="row">{time ? `${age(time, Date.now())} ago` : "used"}</th>
            <td>
              {human(memoryUsed)} of {human(memoryTotal)}
            </td>
            <td class="bar">
              <meter aria-label="memory that programs use" max={Math.max(1, memoryTotal)} value={memoryUsed} />
            </td>
          </tr>
        </tbody>
      </table>
      {!!memoryUnowned && <p class="quiet">{human(memoryUnowned)} of it by no known container.</p>}
    </>
  )
}

/** What is another text when there may be events: how much memory is used changes without any. */
const versionOf = (device: Device) =>
  JSON.stringify({ ...device, measured: 0, holders: device.holders?.map((h) => ({ ...h, memoryUsed: 0 })) })

/** What describes a device, by name. */
function Attributes({ attributes }: { attributes: Record<string, Attribute> }) {
  return (
    <>
      <h3>Attributes</h3>
      <table>
        <tbody>
          {Object.entries(attributes).map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name.split("/").pop()}</th>
              <td title={name}>{attributeText(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  )
}

/** What the taints of a device are, and what they mean. */
function Taints({ taints }: { taints: Taint[] }) {
  const evicts = taints.some((t) => t.effect === "NoExecute")
  return (
    <>
      <h3>Taints</h3>
      <ul>
        {taints.map((t) => (
          <li key={t.key + t.effect} class="line">
            <span class="taint">{cordons(t) ? "cordoned" : taintText(t)}</span>
            {t.timeAdded && (
              <time class="quiet" dateTime={t.timeAdded}>
                {age(t.timeAdded, Date.now())}
              </time>
            )}
          </li>
        ))}
      </ul>
      <p class="quiet">
        Only pods that tolerate {taints.length === 1 ? "it" : "all of them"} get the device
        {evicts ? ", and who has it and does not is evicted." : "; who has it keeps it."}
      </p>
    </>
  )
}

function OfPod({ uid, cluster, view, show, close }: Selected & { uid: string }) {
  const held = cluster.devicesOf(uid)
  const pod = cluster.pods.get(uid)
  const holder = held[0]?.holders[0]
  const name = pod ?? (holder && { namespace: holder.namespace, name: holder.pod })
  if (!name) return cluster.complete ? <Missing what="devices of this pod, nor does it wait for some," close={close} /> : null
  const state = pod?.state ?? held.flatMap((h) => h.holders).find((h) => h.state !== "Granted")?.state ?? "Granted"
  return (
    <Panel kind="selection" title={name.name} under={[name.namespace, state, held[0]?.node.name].filter(Boolean).join(" · ")} close={close}>
      {pod && requestsOf(pod) && <p class="quiet">Requests {requestsOf(pod)}, for {age(pod.since, Date.now())}.</p>}
      {pod && (pod.state === "Waiting" ? <WhyItWaits pod={pod} show={show} /> : <p class="reason">{reasonOf(pod)}</p>)}
      {held.length > 0 && <h3>Devices</h3>}
      <ul>
        {held.map(({ node, device, holders }) => (
          <li key={node.name + device.path}>
            <button class="pod" onClick={() => show({ ...nothing, device: { node: node.name, path: device.path } })}>
              <b>{device.id}</b> <span class="quiet">{groupOf(device, node)}</span>
              {holders.map((h) => (
                <span class="line quiet" key={h.container}>
                  {h.container}: {quantities(h.resources)}
                </span>
              ))}
            </button>
          </li>
        ))}
      </ul>
      {held.length > 0 && (
        <Suppose changes={[`without:${name.namespace}/${name.name}`]} cluster={cluster} view={view} show={show} />
      )}
      <Events queries={[podQuery(name.namespace, uid)]} version={JSON.stringify([pod, held.length, state])} of="the pod" />
    </Panel>
  )
}

const podQuery = (namespace: string, uid: string) =>
  `namespace=${encodeURIComponent(namespace)}&uid=${encodeURIComponent(uid)}`

interface Event {
  time: string
  type: string
  reason: string
  message: string
  count?: number
}

/** The cluster's newest events. They are read again when what they are about is another version. */
function Events({ queries, version, of }: { queries: string[]; version: string; of: string }) {
  const [events, setEvents] = useState<Event[]>()
  const [wrong, setWrong] = useState("")
  useEffect(() => {
    const stop = new AbortController()
    const read = async () => {
      try {
        const lists = await Promise.all(
          queries.map(async (query) => {
            const answer = await get("events?" + query, stop.signal)
            return (await answer.json()) as Event[]
          }),
        )
        setEvents(lists.flat().sort((a, b) => b.time.localeCompare(a.time)).slice(0, 20))
        setWrong("")
      } catch (error) {
        if (!stop.signal.aborted) setWrong(error instanceof Error ? error.message : String(error))
      }
    }
    // What changes often is not read as often; and an event may be written just after the change.
    const timer = setTimeout(read, events ? 1000 : 0)
    return () => {
      clearTimeout(timer)
      stop.abort()
    }
  }, [queries.join(), version])
  return (
    <>
      <h3>Events of {of}</h3>
      {wrong && <p class="reason">{wrong}</p>}
      {events?.length === 0 && <p class="quiet">No recent events.</p>}
      <ul class="events">
        {events?.map((event, i) => (
          <li key={i} class={event.type === "Warning" ? "warning" : ""}>
            <span class="line">
              <b>{event.reason}</b>
              <time class="quiet" dateTime={event.time}>
                {age(event.time, Date.now())}
                {(event.count ?? 1) > 1 && ` ×${event.count}`}
              </time>
            </span>
            {event.message}
          </li>
        ))}
      </ul>
    </>
  )
}
