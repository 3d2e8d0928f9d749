// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kubedevice/kubedevice/test/browser"
)

// small are documents that make a site.
var small = map[string]string{
	"README.md":      "# Small\n\nOne page: [claims](docs/use/claims.md#modes).\n",
	"docs/README.md": "# Documentation\n\n- [Claims](use/claims.md)\n- [Pictures](use/pictures.md)\n",
	"docs/use/claims.md": "# Claims\n\nSee [the index](../README.md) and [the licence](../../LICENSE).\n\n" +
		"## Modes\n\n[Up](#claims)\n",
	"docs/use/pictures.md":   "# Pictures\n\n![A square](../images/square.svg)\n",
	"docs/images/square.svg": `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>`,
}

// checkoutOf returns a checkout that has what makes the site, and these documents.
func checkoutOf(t *testing.T, documents ...map[string]string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	for _, tools := range []string{"hack/site", "pkg/kubectl/web/ui/src"} {
		if err := os.CopyFS(filepath.Join(directory, tools), os.DirFS(filepath.Join(root, tools))); err != nil {
			t.Fatal(err)
		}
	}
	for _, files := range documents {
		for name, text := range files {
			file := filepath.Join(directory, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return directory
}

func TestDocumentsWithFaultsMakeNoSite(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a page that does not exist": {
			"# A\n\n[Off](../deploy/off.md)\n", `use/a.md:3:1": link to ../deploy/off.md, which does not exist`,
		},
		"a heading that does not exist": {
			"# A\n\n[Off](claims.md#off)\n", `use/a.md:3:1": link to claims.md#off, which has no such heading`,
		},
		"no such heading on the page": {"# A\n\n[Off](#off)\n", "link to #off, which has no such heading"},
		"a picture that does not exist": {
			"# A\n\n![Off](../images/off.svg)\n", "picture ../images/off.svg, which does not exist",
		},
		"no title": {"A.\n", "no heading: the first line of a document is its title"},
		"no fault": {"# A\n\n[On](claims.md#modes)\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := build(t.Context(), checkoutOf(t, small, map[string]string{"docs/use/a.md": test.text}))
			said := ""
			if err != nil {
				said = err.Error()
			}
			if (err == nil) != (test.want == "") || !strings.Contains(said, test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestTheSiteNeedsNoNetworkOnceItsModulesAreThere(t *testing.T) {
	checkout := checkoutOf(t, small)
	script := filepath.Join(checkout, "hack", "site", "build.sh")
	command := exec.Command("unshare", "--user", "--map-root-user", "--net", script)
	command.Env = append(os.Environ(), "GOWORK=off")
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if _, err := os.Stat(filepath.Join(checkout, "_output", "site", "use", "claims.html")); err != nil {
		t.Error(err)
	}
}

// The site has each release's own documents, and leads from a page to the same of other versions.
func TestTheSiteHasTheDocumentsOfReleases(t *testing.T) {
	checkout := checkoutOf(t, small, map[string]string{"docs/use/old.md": "# Old\n\nGone since.\n"})
	git := func(args ...string) {
		t.Helper()
		author := []string{"-c", "user.name=a", "-c", "user.email=a@b.example"}
		command := exec.Command("git", append(author, args...)...)
		command.Dir = checkout
		if said, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, said)
		}
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "--message=v0.9.0")
	git("tag", "v0.9.0")
	if err := os.Remove(filepath.Join(checkout, "docs", "use", "old.md")); err != nil {
		t.Fatal(err)
	}
	into, err := build(t.Context(), checkout, "v0.9.0")
	if err != nil {
		t.Fatal(err)
	}

	p := browser.Open(t.Context(), t, chromium, serve(t, into), windowWidth, windowHeight)
	p.Do("open a page", chromedp.Navigate(p.Base+"use/claims.html#modes"))
	p.Await("the version", `document.querySelector('.versions summary')?.innerText.endsWith("main")`)
	version := func(name string) string {
		return `[...document.querySelectorAll('.versions a')].find(a => a.textContent == "` + name + `")`
	}
	p.Click(version("v0.9.0"))
	p.Await("the same page of the release", `location.pathname == "/v0.9.0/use/claims.html" &&
		document.querySelector('.versions summary')?.innerText.endsWith("v0.9.0")`)
	p.Await("the menu of the release", `[...document.querySelectorAll('.pages a')].map(a => a.pathname).join() ==
		"/v0.9.0/documents.html,/v0.9.0/use/claims.html,/v0.9.0/use/pictures.html,/v0.9.0/use/old.html"`)
	p.Await("links to files of the release", `[...document.querySelectorAll('article a')].some(
		a => a.href.endsWith("/blob/v0.9.0/LICENSE"))`)
	p.Do("search", chromedp.SendKeys("input[type=search]", "gone"))
	p.Await("what the release alone has",
		`document.querySelector('.found li a')?.href.endsWith("/v0.9.0/use/old.html")`)
	p.Click(`document.querySelector('.found li a')`)
	p.Await("the page", `document.querySelector('h1')?.innerText == "Old"`)
	p.Click(version("main"))
	p.Await("the first page of the other version, which has no such page",
		`location.pathname == "/" && document.querySelector('h1')?.innerText == "Small"`)
}
