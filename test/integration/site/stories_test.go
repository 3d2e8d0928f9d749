// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kubedevice/kubedevice/test/browser"
)

// A reader goes from page to page and searches, with a server and with files alone.
func TestTheSearchFindsSectionsWithoutANetwork(t *testing.T) {
	for name, url := range map[string]string{
		"from a server": serve(t, built),
		"from files":    "file://" + built + "/index.html",
	} {
		t.Run(name, func(t *testing.T) {
			p := browser.Open(t.Context(), t, chromium, url, windowWidth, windowHeight)
			p.Click(`[...document.querySelectorAll('article a')].find(a => a.innerText == "Request devices")`)
			p.Await("the page", `document.querySelector('h1')?.innerText == "Request devices"`)
			p.Await("its place in the menu",
				`document.querySelector('.pages [aria-current=page]')?.innerText == "Request devices"`)

			p.Do("go to the search", browser.Shortcut("/"))
			p.Await("the focus in the search", `document.activeElement.matches('input[type=search]')`)
			p.Do("search", chromedp.SendKeys("input[type=search]", "cordon TAINTS"))
			first := `document.querySelector('.found li a')`
			p.Await("the section about both, first", first+`?.querySelector('b').innerText ==
				"When a device fails › Cordon and taint a device"`)
			p.Await("its words, marked", `[...document.querySelectorAll('.found li:first-child b mark')].map(
				e => e.innerText).join() == "Cordon,taint"`)
			p.Await("how many there are",
				`/^\d+( of \d+)? results$/.test(document.querySelector('.found [role=status]').innerText)`)
			p.Do("go down and up", chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown),
				chromedp.KeyEvent(kb.ArrowUp))
			p.Await("the focus at the first", `document.activeElement == `+first)
			p.Do("close it", chromedp.KeyEvent(kb.Escape))
			p.Await("nothing found, the focus in the search", `document.querySelector('.found').hidden &&
				document.activeElement.matches('input[type=search]')`)
			p.Do("change the query", chromedp.KeyEvent(" "), chromedp.KeyEvent("x"), chromedp.KeyEvent("q"),
				chromedp.KeyEvent("q"))
			p.Await("that nothing has it",
				`document.querySelector('.found').innerText == "Nothing has “cordon TAINTS xqq”."`)
			p.Do("take it back and open the first", chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace),
				chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Enter))
			p.Await("the section", `document.querySelector('h1')?.innerText == "When a device fails" &&
				location.hash == "#cordon-and-taint-a-device" &&
				Math.abs(document.querySelector(location.hash)?.getBoundingClientRect().top - 72) < 30`)
		})
	}
}

func TestTheReadersColoursStayOnTheNextPage(t *testing.T) {
	p := browser.Open(t.Context(), t, chromium, serve(t, built), windowWidth, windowHeight)
	dark := `getComputedStyle(document.body).backgroundColor == "rgb(16, 19, 23)"`
	p.Do("make the system dark", browser.Scheme("dark"))
	p.Await("dark colours", dark)
	p.Do("make the system light", browser.Scheme("light"))
	p.Await("light colours", "!("+dark+")")
	button := `document.querySelector('button[aria-label="Use dark colours"]')`
	p.Await("the button", button)
	p.Click(button)
	p.Await("dark colours", dark+` && document.querySelector('button[aria-label="Use light colours"]')`)
	p.Do("open a page with a picture for the dark", chromedp.Navigate(p.Base+"use/kubectl-device.html"))
	p.Await("dark colours, and the picture", dark+` && document.querySelector('img.dark').checkVisibility() &&
		!document.querySelector('img.light').checkVisibility()`)
}

func TestCommandsAreCopiedWithoutPromptsAndOutput(t *testing.T) {
	p := browser.Open(t.Context(), t, chromium, serve(t, built), windowWidth, windowHeight)
	p.Do("open a page", chromedp.Navigate(p.Base+"use/kubectl-device.html"))
	copied := browser.Value[string](p, `new Promise(done => {
		navigator.clipboard.writeText = async text => done(text);
		document.querySelector('code[data-lang=console]').closest('.highlight').querySelector('button').click();
	})`)
	shown := browser.Value[string](p, `document.querySelector('code[data-lang=console]').innerText`)
	want, printed := "", 0
	for line := range strings.Lines(shown) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			want += command
		} else {
			printed++
		}
	}
	if copied != want || want == "" || printed == 0 {
		t.Errorf("%q is copied of %q, want %q", copied, shown, want)
	}
}

func TestTheMenuOpensOnAPhone(t *testing.T) {
	p := browser.Open(t.Context(), t, chromium, serve(t, built), phoneWidth, phoneHeight)
	link := `[...document.querySelectorAll('.pages a')].find(a => a.innerText == "Troubleshooting")`
	p.Await("no menu", "!"+link+"?.checkVisibility()")
	p.Click(`document.querySelector('.menu > summary')`)
	p.Await("the menu", link+".checkVisibility()")
	p.Click(link)
	p.Await("the page, without the menu", `document.querySelector('h1')?.innerText == "Troubleshooting" &&
		document.querySelector('h1').getBoundingClientRect().bottom < innerHeight`)
}
