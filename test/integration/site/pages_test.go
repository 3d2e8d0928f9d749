// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kubedevice/kubedevice/test/browser"
)

// The size of a small phone, and of a window, in CSS pixels.
const (
	phoneWidth, phoneHeight   = 390, 844
	windowWidth, windowHeight = 1360, 900
)

// page is what a browser knows of a page. Addresses are relative to that of the site.
type page struct {
	Title    string
	Headings []int  // their levels
	Widest   string // what is wider than the window, "" if nothing is
	Links    []string
	Pictures []string
	IDs      []string
}

// read is an expression for a page.
const read = `({
	title: document.title,
	headings: [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(e => Number(e.tagName[1])),
	widest: document.documentElement.scrollWidth <= innerWidth ? "" : [...document.querySelectorAll('main *')].filter(
		e => e.getBoundingClientRect().right > innerWidth).at(-1)?.outerHTML ?? "the page",
	links: [...document.links].map(e => e.href),
	pictures: [...document.images].map(e => e.src),
	ids: [...document.querySelectorAll('[id]')].map(e => e.id),
})`

func TestEveryPageOfTheSiteOpensOnAPhone(t *testing.T) {
	url := serve(t, built)
	p := browser.Open(t.Context(), t, chromium, url, phoneWidth, phoneHeight)
	names := pages(t, built)
	all := map[string]page{}
	for _, name := range names {
		p.Do("open "+name, chromedp.Navigate(url+name))
		found := browser.Value[page](p, read)
		all[name] = found
		if !strings.Contains(found.Title, "KubeDevice") {
			t.Errorf("%s has the title %q", name, found.Title)
		}
		if found.Widest != "" {
			t.Errorf("%s is wider than %d px: %.300s", name, phoneWidth, found.Widest)
		}
		if len(found.Headings) == 0 || found.Headings[0] != 1 || slices.Contains(found.Headings[1:], 1) {
			t.Errorf("%s has headings of the levels %v, want one of level 1, at the top", name, found.Headings)
		}
		for i, level := range found.Headings[1:] {
			if level > found.Headings[i]+1 {
				t.Errorf("%s has headings of the levels %v: one is left out", name, found.Headings)
				break
			}
		}
		for _, picture := range found.Pictures {
			if _, err := os.Stat(filepath.Join(built, strings.TrimPrefix(picture, url))); err != nil {
				t.Errorf("%s has a picture that does not exist: %v", name, err)
			}
		}
	}

	links := 0
	for name, from := range all {
		for _, link := range from.Links {
			inside, ok := strings.CutPrefix(link, url)
			if !ok {
				continue
			}
			links++
			target, id, _ := strings.Cut(inside, "#")
			if target == "" || strings.HasSuffix(target, "/") { // the server's name of the page itself
				target += "index.html"
			}
			if to, ok := all[target]; !ok {
				t.Errorf("%s links to %s, which is no page", name, target)
			} else if id != "" && !slices.Contains(to.IDs, id) {
				t.Errorf("%s links to %s#%s, which has no such heading", name, target, id)
			}
		}
	}
	if len(all) < 50 || links < 1000 {
		t.Errorf("the site has %d pages with %d links: not the documents?", len(all), links)
	}
}

// Each document is a page, at the same path.
func TestTheSiteHasEveryDocument(t *testing.T) {
	documents := os.DirFS(filepath.Join(root, "docs"))
	have := pages(t, built)
	err := fs.WalkDir(documents, ".", func(name string, _ fs.DirEntry, err error) error {
		document, ok := strings.CutSuffix(name, ".md")
		if document == "README" {
			document = "documents"
		}
		if ok && !slices.Contains(have, document+".html") {
			t.Errorf("docs/%s is no page", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sample are pages that together have all that pages have: pictures, tables, blocks, long lists.
var sample = []string{
	"index.html", "documents.html", "get-started/try-it.html", "use/kubectl-device.html", "reference/metrics.html",
	"deploy/index.html",
}

func TestAxeFindsNothingSeriousOnTheSite(t *testing.T) {
	axe := browser.ReadAxe(t, root)
	url := serve(t, built)
	p := browser.Open(t.Context(), t, chromium, url, windowWidth, windowHeight)
	for _, size := range []struct {
		name          string
		width, height int64
		pages         []string
	}{{"in a window", windowWidth, windowHeight, sample}, {"on a phone", phoneWidth, phoneHeight, sample[:2]}} {
		for _, scheme := range []string{"light", "dark"} {
			p.Do("change size and colours", chromedp.EmulateViewport(size.width, size.height), browser.Scheme(scheme))
			for _, name := range size.pages {
				p.Do("open "+name, chromedp.Navigate(url+name))
				p.HoldTo(axe, name+" "+size.name+", "+scheme)
			}
			p.Do("search", chromedp.SendKeys("input[type=search]", "taint"))
			p.Await("results", `document.querySelectorAll('.found li').length > 3`)
			p.HoldTo(axe, "results "+size.name+", "+scheme)
		}
	}
}
