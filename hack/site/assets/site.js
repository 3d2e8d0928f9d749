// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Colours, search, menus and buttons of the site. All pages work without it.
"use strict"

const root = document.documentElement

// Colours that a reader has chosen stay. Without a choice, the system's count.
const stored = key => { try { return localStorage.getItem(key) } catch { return null } }
const store = (key, value) => { try { localStorage.setItem(key, value) } catch { /* until the next page */ } }
const system = matchMedia("(prefers-color-scheme: dark)")
const scheme = () => root.dataset.scheme ?? (system.matches ? "dark" : "light")
if (["dark", "light"].includes(stored("scheme"))) root.dataset.scheme = stored("scheme")

function startScheme(button) {
  const label = () => {
    const other = scheme() === "dark" ? "light" : "dark"
    button.setAttribute("aria-label", `Use ${other} colours`)
    button.title = `Use ${other} colours`
    return other
  }
  button.addEventListener("click", () => {
    root.dataset.scheme = label()
    store("scheme", root.dataset.scheme)
    label()
  })
  system.addEventListener("change", label)
  label()
  button.hidden = false
}

// words are those of a query, in small letters: "claims" finds "claim", too.
const words = query => query.toLowerCase().split(/\s+/).filter(Boolean)
  .map(word => word.length > 4 && word.endsWith("s") ? word.slice(0, -1) : word)

const quoted = word => word.replace(/[^\p{L}\p{N}]/gu, char => `\\u{${char.codePointAt(0).toString(16)}}`)

// find returns the sections that have all words of a query, best first. A word counts most in a title, then in a
// heading, and more where it is the beginning of a word.
function find(documents, query) {
  const wanted = words(query).map(word => ({ word, begins: new RegExp(`(?<![\\p{L}\\p{N}])${quoted(word)}`, "iu") }))
  const weigh = (text, { word, begins }) => begins.test(text) ? 2 : text.toLowerCase().includes(word) ? 1 : 0
  const results = []
  for (const page of documents) {
    for (const section of page.sections) {
      const weights = wanted.map(word => (section.anchor ? 3 : 12) * weigh(page.title, word) +
        8 * weigh(section.heading, word) + weigh(section.text, word))
      if (weights.every(weight => weight)) {
        results.push({ page, section, weight: weights.reduce((sum, weight) => sum + weight, 0) })
      }
    }
  }
  return results.sort((a, b) => b.weight - a.weight)
}

// mark returns nodes of a text, in which the words of a query are marked.
function mark(text, query) {
  return text.split(new RegExp(`(${words(query).map(quoted).join("|")})`, "iu")).map((part, i) => {
    if (i % 2 === 0) return part
    const marked = document.createElement("mark")
    marked.textContent = part
    return marked
  })
}

// around returns the part of a text around the first word of a query that it has.
function around(text, query) {
  const lower = text.toLowerCase()
  const first = Math.min(...words(query).map(word => lower.indexOf(word)).filter(at => at >= 0), text.length)
  const from = first > 60 && first < text.length ? text.indexOf(" ", first - 60) + 1 : 0
  const to = text.length > from + 160 ? text.lastIndexOf(" ", from + 160) : text.length
  return (from ? "… " : "") + text.slice(from, to > from ? to : from + 160).trim() + (to < text.length ? " …" : "")
}

const mostResults = 30

function startSearch(form) {
  const input = form.querySelector("input"), found = form.querySelector(".found")
  const count = found.querySelector(".count"), list = found.querySelector("ul")
  let loading // of what is searched: a script, as a page in a file may read no other file
  const load = () => loading ??= new Promise((done, failed) => {
    const script = document.createElement("script")
    script.src = form.action
    script.onload = () => done(window.documents)
    script.onerror = () => { loading = undefined; failed() }
    document.head.append(script)
  })
  const close = () => { found.hidden = true }

  const show = (documents, query) => {
    const results = find(documents, query)
    count.textContent = results.length === 0 ? `Nothing has “${query}”.`
      : results.length === 1 ? "1 result"
        : results.length > mostResults ? `${mostResults} of ${results.length} results` : `${results.length} results`
    list.replaceChildren(...results.slice(0, mostResults).map(({ page, section }) => {
      const item = document.createElement("li"), link = document.createElement("a")
      const title = document.createElement("b"), text = document.createElement("span")
      link.href = new URL(page.address + (section.anchor && "#" + section.anchor), form.action)
      title.append(...mark(page.title + (section.heading && " › " + section.heading), query))
      text.append(...mark(around(section.text, query), query))
      link.append(title, text)
      item.append(link)
      return item
    }))
    found.hidden = false
    found.scrollTop = 0
  }
  const search = async () => {
    const query = input.value.trim()
    if (!query) return close()
    try {
      const documents = await load()
      if (input.value.trim() === query) show(documents, query)
    } catch {
      count.textContent = "The search could not be loaded."
      found.hidden = false
    }
  }

  input.addEventListener("focus", () => { load().catch(() => {}) })
  input.addEventListener("input", search)
  input.addEventListener("click", search)
  form.addEventListener("submit", event => {
    event.preventDefault()
    list.querySelector("a")?.click()
  })
  list.addEventListener("click", close)
  form.addEventListener("keydown", event => {
    const stops = [input, ...list.querySelectorAll("a")]
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step && found.hidden) {
      search()
    } else if (step) {
      event.preventDefault()
      stops[Math.min(Math.max(stops.indexOf(document.activeElement) + step, 0), stops.length - 1)].focus()
    } else if (event.key === "Escape") {
      close()
      input.focus()
    }
  })
  document.addEventListener("focusin", event => { if (!form.contains(event.target)) close() })
  document.addEventListener("click", event => { if (!form.contains(event.target)) close() })
  document.addEventListener("keydown", event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return
    if (event.target.closest("input, textarea, select")) return
    event.preventDefault()
    input.focus()
    input.select()
  })
  form.hidden = false
}

// Blocks of commands can be copied: without prompts, and without what they print.
function startCopy(block) {
  const code = block.querySelector("code")
  const button = document.createElement("button")
  button.type = "button"
  button.className = "copy"
  button.textContent = "Copy"
  button.addEventListener("click", async () => {
    let text = code.innerText
    if (code.dataset.lang === "console") {
      text = text.split("\n").filter(line => line.startsWith("$ ")).map(line => line.slice(2)).join("\n") + "\n"
    }
    try {
      await navigator.clipboard.writeText(text)
      button.textContent = "Copied"
    } catch {
      button.textContent = "Not copied"
    }
    setTimeout(() => { button.textContent = "Copy" }, 2000)
  })
  block.append(button)
}

// Menus are open where there is room, and closed at first elsewhere.
function startMenus(wide, menu) {
  const follow = () => { menu.open = wide.matches }
  wide.addEventListener("change", follow)
  follow()
}

document.addEventListener("DOMContentLoaded", () => {
  startScheme(document.querySelector("button.scheme"))
  startSearch(document.querySelector("form.search"))
  document.querySelectorAll(".highlight").forEach(block => {
    if (block.querySelector("code")?.dataset.lang !== "text") startCopy(block)
  })
  startMenus(matchMedia("(min-width: 60rem)"), document.querySelector("details.menu"))
  document.querySelectorAll(".contents details").forEach(menu => startMenus(matchMedia("(min-width: 80rem)"), menu))
  document.querySelector('.pages [aria-current="page"]')?.scrollIntoView({ block: "nearest" })
  document.addEventListener("click", event => {
    document.querySelectorAll("details.versions[open]").forEach(menu => {
      if (!menu.contains(event.target)) menu.open = false
    })
  })
})
